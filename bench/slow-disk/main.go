// Slow-disk mounts a folder at another place as a file system on which each flush takes a fixed
// time. Flushes of different files run in parallel, as on an NVMe disk. On SIGTERM, it unmounts the
// file system and exits.
//
//	slow-disk FOLDER MOUNT-POINT 10ms
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

var flush time.Duration

type node struct{ fs.LoopbackNode }

func (*node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	time.Sleep(flush)
	return 0
}

func main() {
	folder, at := os.Args[1], os.Args[2]
	var err error
	if flush, err = time.ParseDuration(os.Args[3]); err != nil {
		log.Fatal(err)
	}
	root := &fs.LoopbackRoot{Path: folder}
	root.NewNode = func(root *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &node{fs.LoopbackNode{RootData: root}}
	}
	second := time.Second
	options := &fs.Options{AttrTimeout: &second, EntryTimeout: &second}
	options.MountOptions = fuse.MountOptions{DirectMount: true}
	server, err := fs.Mount(at, root.NewNode(root, nil, "", nil), options)
	if err != nil {
		log.Fatalf("cannot mount %s: %v", at, err)
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	go func() {
		<-ends
		server.Unmount()
	}()
	server.Wait()
}
