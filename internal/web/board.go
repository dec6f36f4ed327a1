package web

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// The log has maxLog publications, or as many as maxLogBytes hold.
	maxLog      = 64
	maxLogBytes = 8 << 20
	// chunk is how many rows one event has: the page handles one within a frame.
	chunk = 250
)

// publication is what one look has changed.
type publication struct {
	set    []*row
	gone   []string // ids
	status []byte   // JSON
}

// entry is a publication as it is sent.
type entry struct {
	number uint64
	data   []byte
}

// board has the state after the last publication, and how it came about.
//
// Invariants, under mu: the entries of the log have successive numbers, the last one is number; rows and
// status are the state after it; news is open, and is closed by the next publication.
type board struct {
	epoch string // of this process: numbers of another one mean nothing

	mu     sync.Mutex
	number uint64
	rows   map[string]*row
	status []byte
	log    []entry
	bytes  int
	news   chan struct{}
}

func newBoard() *board {
	return &board{epoch: strings.ToLower(rand.Text()), rows: make(map[string]*row), news: make(chan struct{})}
}

// publish applies a publication, and wakes the streams.
func (b *board) publish(p publication) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range p.set {
		b.rows[r.id] = r
	}
	for _, id := range p.gone {
		delete(b.rows, id)
	}
	b.number++
	b.status = p.status
	e := entry{b.number, b.encode(p, b.number)}
	b.log, b.bytes = append(b.log, e), b.bytes+len(e.data)
	for len(b.log) > 1 && (len(b.log) > maxLog || b.bytes > maxLogBytes) {
		b.bytes -= len(b.log[0].data)
		b.log[0].data = nil
		b.log = b.log[1:]
	}
	close(b.news)
	b.news = make(chan struct{})
}

// next returns what a page needs that has seen all up to a number, the number it has seen then, and a
// channel that is closed when there is more. Nothing is sent if nothing is new. A page that has seen 0
// gets everything, and so does one that is behind the log.
func (b *board) next(seen uint64) (data [][]byte, now uint64, news <-chan struct{}) {
	b.mu.Lock()
	if seen == b.number {
		defer b.mu.Unlock()
		return nil, seen, b.news
	}
	now, news = b.number, b.news
	if seen > 0 && seen < b.number && b.log[0].number <= seen+1 {
		for _, e := range b.log[seen+1-b.log[0].number:] {
			data = append(data, e.data)
		}
		b.mu.Unlock()
		return data, now, news
	}
	all := make([]*row, 0, len(b.rows))
	for _, r := range b.rows {
		all = append(all, r)
	}
	status := b.status
	b.mu.Unlock()
	return [][]byte{[]byte("event: reset\nretry: 1000\ndata: {}\n\n"), b.encode(publication{set: all, status: status}, now)}, now, news
}

// encode makes server-sent events. The last one has the id, so a page that has seen a part of a
// publication gets all of it again.
func (b *board) encode(p publication, number uint64) []byte {
	size := len(p.status) + 100
	for _, r := range p.set {
		size += len(r.json) + 1
	}
	out := make([]byte, 0, size+size/100+30*len(p.gone))
	for rows := range slices.Chunk(p.set, chunk) {
		out = append(out, "event: rows\ndata: {\"set\":["...)
		for i, r := range rows {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, r.json...)
		}
		out = append(out, "]}\n\n"...)
	}
	for ids := range slices.Chunk(p.gone, 10*chunk) {
		out = append(out, `event: rows`+"\n"+`data: {"gone":["`...)
		out = append(out, strings.Join(ids, `","`)...)
		out = append(out, `"]}`+"\n\n"...)
	}
	return fmt.Appendf(out, "id: %s.%d\nevent: status\ndata: %s\n\n", b.epoch, number, p.status)
}

// seen reads the id of the last event that a page has seen; 0 if that is none of this process.
func (b *board) seen(id string) uint64 {
	epoch, number, _ := strings.Cut(id, ".")
	if epoch != b.epoch {
		return 0
	}
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}

// row returns a row by its id.
func (b *board) row(id string) *row {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rows[id]
}

// latest is the number of the last publication.
func (b *board) latest() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.number
}
