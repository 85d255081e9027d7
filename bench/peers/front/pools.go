// Package front is the code that the Go peers share: pools and keys, HTTP, JSON. Each peer's
// Allocator supplies the numbers.
package front

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
)

// Pool is a ring pool from the list of pools.
type Pool struct {
	// Index is its position in the list, starting at 0.
	Index          int
	ID             string
	Key            string
	Overflow       uint64 // 0 if it has none
	LifetimeMillis int64
	FirstNumber    uint64 // its numbers are consecutive
	Numbers        int
}

// ReadPools reads a list of pools that `ringwell demo` wrote.
func ReadPools(path string) ([]*Pool, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, err
	}
	pools := make([]*Pool, 0, len(lines))
	for _, line := range lines[1:] { // skip the column names
		lifetime, err := strconv.ParseFloat(line[3], 64)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", line[0], err)
		}
		var fields [3]uint64
		for i, text := range []string{line[2], line[4], line[5]} {
			if text == "" {
				continue // no overflow number
			}
			if fields[i], err = strconv.ParseUint(text, 10, 64); err != nil {
				return nil, fmt.Errorf("pool %s: %w", line[0], err)
			}
		}
		pools = append(pools, &Pool{
			Index: len(pools), ID: line[0], Key: line[1], Overflow: fields[0],
			LifetimeMillis: int64(lifetime * 1000), FirstNumber: fields[1], Numbers: int(fields[2]),
		})
	}
	return pools, nil
}
