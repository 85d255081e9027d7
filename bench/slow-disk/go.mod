module slow-disk

go 1.22

require github.com/hanwen/go-fuse/v2 v2.5.1

require golang.org/x/sys v0.0.0-20220520151302-bc2c85ada10a // indirect
