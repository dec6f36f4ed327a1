package web

import (
	"context"
	"encoding/json"
	"iter"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

const (
	// maxRows bounds what a page shows, maxNames the bytes of all names together.
	maxRows  = 20_000
	maxNames = 64 << 20
)

// Locks is who knows the locks: an *engine.Engine.
type Locks interface {
	List(ctx context.Context, pattern string) iter.Seq2[*engine.LockInfo, error]
	Inspect(ctx context.Context, name string) (*engine.LockInfo, error)
}

// source looks at all locks once in a period, while a page is open, and publishes what has changed.
// Only run's goroutine uses the fields without a comment.
type source struct {
	locks   Locks
	pattern string
	every   time.Duration
	board   *board
	history *history

	looks uint64
	gap   bool            // nobody has looked for a while
	last  status          // of the last look without an error
	rows  map[string]*row // by name

	mu    sync.Mutex
	pages int           // under mu
	wake  chan struct{} // under mu: closed when the first page comes; nil if there is one
}

func newSource(c Config, b *board, h *history) *source {
	return &source{
		locks: c.Locks, pattern: c.Pattern, every: c.Every, board: b, history: h,
		rows: make(map[string]*row), wake: make(chan struct{}),
	}
}

// open counts a page until it is closed, and reports whether it is the only one: nobody has looked lately.
func (s *source) open() (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages++; s.pages == 1 {
		close(s.wake)
		s.wake = nil
	}
	return s.pages == 1
}

func (s *source) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages--; s.pages == 0 {
		s.wake = make(chan struct{})
	}
}

// run looks until ctx ends. A look that takes long makes the period longer: at least half of the time
// the server is left alone.
func (s *source) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		wake := s.wake
		s.mu.Unlock()
		if wake != nil {
			select {
			case <-wake:
			case <-ctx.Done():
			}
			s.gap = true
			continue
		}
		began := time.Now()
		s.look(ctx)
		took := time.Since(began)
		select {
		case <-time.After(max(s.every-took, took)):
		case <-ctx.Done():
		}
	}
}

// look lists all locks, and publishes. Of the rows that a look with an error has not found, those stay whose lease runs: they
// may be on the server that has failed.
func (s *source) look(ctx context.Context) {
	s.looks++
	began := time.Now()
	st := status{Pattern: shown(s.pattern, maxShown), EveryMS: s.every.Milliseconds()}
	engines := make(map[string]*engineJSON)
	var p publication
	names := 0
	whole := true
	for l, err := range s.locks.List(ctx, s.pattern) {
		if err != nil {
			st.Error, whole = shown(err.Error(), 1000), false
			break
		}
		if names += len(l.Name); st.Locks == maxRows || names > maxNames {
			st.Truncated, whole = true, false
			break
		}
		if r, changed := s.see(l, &p); changed {
			p.set = append(p.set, r)
		}
		count(engines, l)
		st.Locks++
		st.Waiting += l.Waiting
		st.Silent = l.Silent
		if l.NotAsked != nil {
			st.NotAsked = shown(l.NotAsked.Error(), 1000)
		}
	}
	now := time.Now()
	for name, r := range s.rows {
		if r.seen == s.looks || st.Error != "" && r.lease.After(now) && len(s.rows) <= maxRows {
			continue
		}
		delete(s.rows, name)
		p.gone = append(p.gone, r.id)
		if whole {
			s.history.note(r, nil, now)
		}
	}
	st.add(engines)
	st.At, st.TookMS, st.Changes = now.UnixMilli(), now.Sub(began).Milliseconds(), len(p.set)+len(p.gone)
	if s.gap = false; st.Error == "" {
		s.last = st
	} else {
		st.Locks, st.Waiting = len(s.rows), s.last.Waiting
		if s.last.Engines != nil {
			st.Engines, st.More = s.last.Engines, s.last.More
		}
	}
	p.status, _ = json.Marshal(st) // strings and numbers
	s.board.publish(p)
}

// see compares a lock with the look before.
func (s *source) see(l *engine.LockInfo, p *publication) (r *row, changed bool) {
	now := time.Now()
	before := s.rows[l.Name]
	r = rowOf(l, before, now, s.gap)
	r.seen = s.looks
	if r == before {
		return r, false
	}
	if before != nil || s.looks > 1 {
		s.history.note(before, r, now)
	}
	s.rows[l.Name] = r
	return r, true
}
