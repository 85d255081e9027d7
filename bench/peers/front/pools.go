// Package front is what the Go peers share: pools and keys, HTTP, JSON. It does not know where the
// numbers come from; that is an Allocator's.
package front

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
)

// Pool is a ring pool as the list of pools describes it.
type Pool struct {
	// Index is its place in the list, from 0.
	Index          int
	ID             string
	Key            string
	Overflow       uint64 // 0 if it has none
	LifetimeMillis int64
	FirstNumber    uint64 // its numbers follow each other
	Numbers        int
}

// ReadPools reads a list as `ringwell demo` writes it.
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
	for _, line := range lines[1:] { // the first one has the names of the columns
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
