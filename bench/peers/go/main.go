// An idiomatic ring pool server in Go: net/http, all pools in memory, nothing stored on disk.
package main

import (
	"context"
	"sync"
	"time"

	"ringwell.test/peers/front"
)

// ring holds a pool's numbers in the order of allocation. They become free in the same order,
// because all lockouts have the same length.
type ring struct {
	sync.Mutex
	next   int
	freeAt []int64 // milliseconds since start
}

type memory struct {
	start time.Time // includes the monotonic clock, which is never adjusted
	rings []ring    // by front.Pool.Index
}

func (m *memory) Allocate(_ context.Context, pools []*front.Pool, numbers []uint64) error {
	now := time.Since(m.start).Milliseconds()
	for i, pool := range pools {
		ring := &m.rings[pool.Index]
		ring.Lock()
		if ring.freeAt[ring.next] <= now {
			ring.freeAt[ring.next] = now + pool.LifetimeMillis
			numbers[i] = pool.FirstNumber + uint64(ring.next)
			if ring.next++; ring.next == len(ring.freeAt) {
				ring.next = 0
			}
		}
		ring.Unlock()
	}
	return nil
}

func main() {
	front.Main(func(pools []*front.Pool, _ []string) (front.Allocator, error) {
		m := &memory{start: time.Now(), rings: make([]ring, len(pools))}
		for i, pool := range pools {
			m.rings[i].freeAt = make([]int64, pool.Numbers)
		}
		return m, nil
	})
}
