package front

import (
	"crypto/subtle"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/goccy/go-json"
)

type row struct {
	Suffix    string          `json:"api_suffix"`
	RequestID json.RawMessage `json:"request_id"`
	// The following fields are not in the JSON.
	id, key string
	found   *Pool
}

// parse reads a batch into rows, and reuses their memory.
func parse(body []byte, rows []row) ([]row, error) {
	clear(rows[:cap(rows)]) // a row without a request_id must not keep an old one
	batch := struct {
		Requests []row `json:"requests"`
	}{rows}
	if err := json.Unmarshal(body, &batch); err != nil {
		return rows, err
	}
	if len(batch.Requests) == 0 {
		return rows, errors.New("requests must be an array with at least one row")
	}
	return batch.Requests, nil
}

// find sets the pool if it exists and the key is right.
func (r *row) find(pools map[string]*Pool) bool {
	path, query, _ := strings.Cut(r.Suffix, "?")
	r.id, _, _ = strings.Cut(strings.TrimPrefix(path, "ring_pools/"), "/")
	// Only the key is decoded, because url.ParseQuery would build a map of all parameters.
	for query != "" && r.key == "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if value, ok := strings.CutPrefix(pair, "ring_pool_key="); ok {
			r.key, _ = url.QueryUnescape(value)
		}
	}
	pool := pools[r.id]
	if pool == nil || subtle.ConstantTimeCompare([]byte(pool.Key), []byte(r.key)) != 1 {
		return false
	}
	r.found = pool
	return true
}

// render appends the answer. The slice numbers has one entry for each row with a pool, in row
// order.
func render(to []byte, rows []row, numbers []uint64) []byte {
	to = append(to, `{"responses":[`...)
	for i := range rows {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(to, '{')
		if r := &rows[i]; len(r.RequestID) > 0 {
			to = append(to, `"request_id":`...)
			to = append(to, r.RequestID...)
			to = append(to, ',')
		}
		if rows[i].found == nil {
			to = rows[i].renderInvalidKey(to)
		} else {
			to = rows[i].found.render(to, numbers[0])
			numbers = numbers[1:]
		}
		to = append(to, '}')
	}
	return append(to, `]}`...)
}

func (r *row) renderInvalidKey(to []byte) []byte {
	// Marshalling a string cannot fail.
	text, _ := json.Marshal("API Key '" + r.key + "' is not valid for resource '" + r.id + "'")
	to = append(to, `"error_class":"InvalidKey","message":`...)
	return append(to, text...)
}

func (p *Pool) render(to []byte, number uint64) []byte {
	overflow := number == 0
	if overflow && p.Overflow == 0 {
		return append(to, `"error_class":"PoolExhausted","message":"All numbers are in use"`...)
	}
	if overflow {
		number = p.Overflow
	}
	to = append(to, `"promo_number_formatted":"`...)
	at := len(to)
	to = strconv.AppendUint(to, number, 10) // ten digits
	digits := [10]byte(to[at:])
	to = append(to[:at], digits[:3]...)
	to = append(append(to, '-'), digits[3:6]...)
	to = append(append(to, '-'), digits[6:]...)
	to = append(to, `","promo_number":"`...)
	to = append(to, digits[:]...)
	to = append(to, `","tracking_url":""`...) // these pools have none
	if overflow {
		to = append(to, `,"overflow":true`...)
	}
	return to
}
