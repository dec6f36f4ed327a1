package faultproxy

import (
	"sync"
	"time"
)

// queueLimit is how many bytes one direction may hold before its reader stops
// reading, so that a paused direction fills the sender's kernel buffers as a
// stalled network does.
const queueLimit = 1 << 20

// queue carries one direction of a connection from its reader to its writer.
// put never blocks, so it may be called under a lock; the reader alone waits
// for room, before it reads on.
type queue struct {
	mu    sync.Mutex
	items []item
	size  int
	ended bool          // nothing more follows
	ready chan struct{} // capacity 1: items or ended are news for the writer
	room  chan struct{} // capacity 1: size went below the limit
}

// item is what the writer does next: write bytes, or cut the connection.
type item struct {
	due     time.Time // not before; zero: at once
	bytes   []byte
	command string // upwards: the command's name, for Stats
	then    *Trap  // to be told once it is done
	cut     bool
}

func newQueue() *queue {
	return &queue{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func (q *queue) put(it item) {
	q.mu.Lock()
	q.items = append(q.items, it)
	q.size += len(it.bytes)
	q.mu.Unlock()
	notify(q.ready)
}

// end says that nothing more follows.
func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	notify(q.ready)
}

// take waits for items and returns all there are; none: nothing more follows,
// or the connection is over.
func (q *queue) take(over <-chan struct{}) []item {
	for {
		q.mu.Lock()
		items, ended := q.items, q.ended
		q.items, q.size = nil, 0
		q.mu.Unlock()
		if len(items) > 0 {
			notify(q.room)
			return items
		}
		if ended {
			return nil
		}
		select {
		case <-q.ready:
		case <-over:
			return nil
		}
	}
}

// waitForRoom waits while the queue is over its limit.
func (q *queue) waitForRoom(over <-chan struct{}) {
	for {
		q.mu.Lock()
		full := q.size > queueLimit
		q.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-q.room:
		case <-over:
			return
		}
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
