// A ring pool server that stores numbers in Redis, where a Lua script allocates them. This program
// in front of it uses net/http and go-redis, and keeps pools and keys in memory, like
// configuration.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"ringwell.test/peers/front"
)

//go:embed allocate.lua
var source string

// connections is the number of connections to Redis. It limits the number of batches in one turn of
// Redis's event loop, and so in one fsync.
const connections = 64

type store struct {
	client *redis.Client
	script *redis.Script
	keys   []string // by front.Pool.Index
	locks  []any    // lockouts as text
}

func (s *store) Allocate(ctx context.Context, pools []*front.Pool, numbers []uint64) error {
	keys := make([]string, len(pools))
	arguments := make([]any, len(pools))
	for i, pool := range pools {
		keys[i], arguments[i] = s.keys[pool.Index], s.locks[pool.Index]
	}
	// Runs EVALSHA, or EVAL if Redis has not loaded the script yet.
	found, err := s.script.Run(ctx, s.client, keys, arguments...).StringSlice()
	if err != nil {
		return err
	}
	for i, text := range found {
		if text == "" {
			continue
		}
		if numbers[i], err = strconv.ParseUint(text, 10, 64); err != nil {
			return err
		}
	}
	return nil
}

func open(pools []*front.Pool, rest []string) (front.Allocator, error) {
	if len(rest) != 1 {
		return nil, fmt.Errorf("usage: redis PORT POOLS.csv SOCKET")
	}
	ctx := context.Background()
	s := &store{
		client: redis.NewClient(&redis.Options{
			Network: "unix", Addr: rest[0], PoolSize: connections, MinIdleConns: connections,
		}),
		script: redis.NewScript(source),
	}
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	for _, pool := range pools {
		key := "pool:" + pool.ID
		s.keys = append(s.keys, key)
		s.locks = append(s.locks, strconv.FormatInt(pool.LifetimeMillis, 10))
		entries := make([]any, pool.Numbers)
		for i := range entries {
			entries[i] = fmt.Sprintf("%d 0", pool.FirstNumber+uint64(i))
		}
		if err := s.client.RPush(ctx, key, entries...).Err(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func main() {
	front.Main(open)
}
