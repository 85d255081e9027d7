package front

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// Allocator hands out numbers.
type Allocator interface {
	// Allocate sets numbers[i] to the number that has been free longest in pools[i], or to 0 if none
	// is free. It is called once per batch, and must not keep the slices.
	Allocate(ctx context.Context, pools []*Pool, numbers []uint64) error
}

// bodyMax is the maximum length of a body. Longer bodies get 413.
const bodyMax = 1 << 20

// scratch holds a batch's buffers, which the next batch reuses.
type scratch struct {
	body    []byte
	answer  []byte
	rows    []row
	pools   []*Pool
	numbers []uint64
}

type server struct {
	pools    map[string]*Pool
	allocate Allocator
	scratch  sync.Pool
}

// Main runs the server: PROGRAM PORT POOLS.csv [REST...]. The function open creates the allocator
// from the pools and REST.
func Main(open func(pools []*Pool, rest []string) (Allocator, error)) {
	if len(os.Args) < 3 {
		log.Fatal("usage: PROGRAM PORT POOLS.csv [REST...]")
	}
	pools, err := ReadPools(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	allocator, err := open(pools, os.Args[3:])
	if err != nil {
		log.Fatal(err)
	}
	s := &server{pools: make(map[string]*Pool, len(pools)), allocate: allocator}
	s.scratch.New = func() any { return new(scratch) }
	for _, pool := range pools {
		s.pools[pool.ID] = pool
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {})
	mux.HandleFunc("POST /api/{date}/bulk.json", s.bulk)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], mux))
}

func (s *server) bulk(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	t := s.scratch.Get().(*scratch)
	defer s.scratch.Put(t)
	if err := t.read(r); err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var err error
	if t.rows, err = parse(t.body, t.rows[:0]); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t.pools = t.pools[:0]
	for i := range t.rows {
		if row := &t.rows[i]; row.find(s.pools) {
			t.pools = append(t.pools, row.found)
		}
	}
	t.numbers = append(t.numbers[:0], make([]uint64, len(t.pools))...)
	if len(t.pools) > 0 {
		if err := s.allocate.Allocate(r.Context(), t.pools, t.numbers); err != nil {
			log.Print(err)
			http.Error(w, "the store failed", http.StatusInternalServerError)
			return
		}
	}
	t.answer = render(t.answer[:0], t.rows, t.numbers)
	header := w.Header()
	header["Content-Type"] = contentType
	header["Content-Length"] = []string{strconv.Itoa(len(t.answer))}
	header["Processing-Time"] = []string{strconv.FormatInt(time.Since(begun).Milliseconds(), 10)}
	w.Write(t.answer) // fails only if the client has disconnected
}

// contentType is shared by all answers, which saves an allocation for each.
var contentType = []string{"application/json"}

// read reads the body into t.body, and reuses its memory.
func (t *scratch) read(r *http.Request) error {
	if r.ContentLength > bodyMax {
		return fmt.Errorf("the body is longer than %d bytes", bodyMax)
	}
	if r.ContentLength < 0 { // chunked
		body, err := io.ReadAll(io.LimitReader(r.Body, bodyMax))
		t.body = body
		return err
	}
	if int64(cap(t.body)) < r.ContentLength {
		t.body = make([]byte, r.ContentLength)
	}
	t.body = t.body[:r.ContentLength]
	_, err := io.ReadFull(r.Body, t.body)
	return err
}
