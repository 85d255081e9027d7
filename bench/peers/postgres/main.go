// A ring pool server that stores numbers in a PostgreSQL table and locks them row by row with FOR
// UPDATE SKIP LOCKED. This program in front of it uses net/http and pgx, and keeps pools and keys
// in memory.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringwell.test/peers/front"
)

//go:embed schema.sql
var schema string

//go:embed allocate.sql
var allocate string

type store struct {
	pool *pgxpool.Pool
	ids  []int64 // by front.Pool.Index
}

func (s *store) Allocate(ctx context.Context, pools []*front.Pool, numbers []uint64) error {
	// Lists each pool once, with its count of rows, because two rows must not get the same number.
	ids := make([]int64, 0, len(pools))
	counts := make([]int64, 0, len(pools))
	place := make(map[int64]int, len(pools))
	for _, pool := range pools {
		id := s.ids[pool.Index]
		at, known := place[id]
		if !known {
			at = len(ids)
			place[id] = at
			ids, counts = append(ids, id), append(counts, 0)
		}
		counts[at]++
	}
	given := make([][]uint64, len(ids))
	rows, err := s.pool.Query(ctx, allocate, ids, counts)
	if err != nil {
		return err
	}
	var id, number int64
	_, err = pgx.ForEachRow(rows, []any{&id, &number}, func() error {
		given[place[id]] = append(given[place[id]], uint64(number))
		return nil
	})
	if err != nil {
		return err
	}
	for i, pool := range pools {
		if some := &given[place[s.ids[pool.Index]]]; len(*some) > 0 {
			numbers[i], *some = (*some)[0], (*some)[1:]
		}
	}
	return nil
}

func open(pools []*front.Pool, rest []string) (front.Allocator, error) {
	if len(rest) != 1 {
		return nil, fmt.Errorf("usage: postgres PORT POOLS.csv CONNECTION")
	}
	ctx := context.Background()
	connections, err := pgxpool.New(ctx, rest[0])
	if err != nil {
		return nil, err
	}
	if _, err := connections.Exec(ctx, schema); err != nil {
		return nil, err
	}
	s := &store{pool: connections}
	var lines [][]any
	for _, pool := range pools {
		id, err := strconv.ParseInt(pool.ID, 10, 64)
		if err != nil {
			return nil, err
		}
		s.ids = append(s.ids, id)
		for i := range pool.Numbers {
			number := int64(pool.FirstNumber) + int64(i)
			// These times are before 1970 and all different, so that the first round is in order too.
			lines = append(lines, []any{id, number, pool.LifetimeMillis, int64(i - pool.Numbers)})
		}
	}
	columns := []string{"pool_id", "number", "lifetime", "free_at"}
	source := pgx.CopyFromRows(lines)
	if _, err := connections.CopyFrom(ctx, pgx.Identifier{"number"}, columns, source); err != nil {
		return nil, err
	}
	_, err = connections.Exec(ctx, "VACUUM ANALYZE number")
	return s, err
}

func main() {
	front.Main(open)
}
