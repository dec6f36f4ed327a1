package watchdog

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// TestRandomHistoriesForgetNobody lets holds come and go, scripts succeed, fail and
// stay without an answer, and time pass. At every rest each live hold is in one
// cohort or one batch, has time left, and will be looked at within it; one that has
// ended is nowhere; and a script that failed is sent again soon.
func TestRandomHistoriesForgetNobody(t *testing.T) {
	t.Parallel()
	histories := 8
	if testing.Short() {
		histories = 2
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i := range histories {
		h := &randomHistory{lab: newLab(t), rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		for range 1000 {
			h.step()
			h.check()
			if t.Failed() {
				t.Fatalf("in history %d", i)
			}
		}
		h.drain()
		h.lab.wheel.Close()
	}
}

type randomHistory struct {
	*lab
	rng   *rand.Rand
	holds []*subject
	retry map[*batch]pending
	n     int
}

// pending is a batch that waits for its next try.
type pending struct {
	since clock.Instant
	tries int
}

func (h *randomHistory) any() *subject {
	if len(h.holds) == 0 {
		return nil
	}
	return h.holds[h.rng.IntN(len(h.holds))]
}

func (h *randomHistory) step() {
	switch op := h.rng.IntN(20); {
	case op < 3: // holds are taken
		for range 1 + h.rng.IntN(5)*h.rng.IntN(30) {
			h.n++
			s := h.subject(h.n)
			s.stuck = h.rng.IntN(8) == 0
			h.holds = append(h.holds, s)
			h.r.JoinFirst(&s.m, h.clock.Now())
		}
	case op == 3:
		if s := h.any(); s != nil {
			s.end()
		}
	case op == 4:
		if s := h.any(); s != nil && s.live() {
			h.r.Now(&s.m)
		}
	case op == 5:
		switch h.rng.IntN(8) {
		case 0:
			h.r.All()
		default:
			h.r.Resume()
		}
	case op == 6:
		switch h.rng.IntN(4) {
		case 0:
			h.lane(resp.ErrNotSent)
		default:
			h.lane(nil)
		}
	case op < 13:
		h.answerOne()
	case op == 13:
		h.advance(time.Duration(h.rng.Int64N(int64(3 * time.Second))))
	default:
		h.advance(time.Duration(h.rng.Int64N(int64(100 * time.Millisecond))))
	}
	h.settle()
}

// answerOne answers a script, in any order.
func (h *randomHistory) answerOne() {
	h.mu.Lock()
	if len(h.out) == 0 {
		h.mu.Unlock()
		return
	}
	i := h.rng.IntN(len(h.out))
	s := h.out[i]
	h.out = append(h.out[:i], h.out[i+1:]...)
	h.mu.Unlock()
	switch h.rng.IntN(5) {
	case 0:
		h.fail(s, resp.ErrOutcomeUnknown)
	case 1:
		h.reply(s, "+OK\r\n")
	default:
		codes := []int64{script.Renewed, script.Renewed, script.Renewed, script.Renewed, script.Renewed, script.Renewed, script.Refused, script.Gone, script.WrongType}
		h.answer(s, func(int) int64 { return codes[h.rng.IntN(len(codes))] })
	}
}

// check looks at everybody.
func (h *randomHistory) check() {
	now := h.clock.Now()
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	placed := 0
	chunks := h.r.mu.chunks.InOrder()
	known := make(map[*batch]bool)
	for _, k := range chunks {
		known[k] = true
	}
	kept := h.holds[:0]
	for _, s := range h.holds {
		s.mu.Lock()
		live := !s.over
		s.mu.Unlock()
		c, k := s.m.group, s.m.chunk
		switch {
		case !live && (c != nil || k != nil):
			h.t.Errorf("hold %d has ended and is still in a cohort (%v) or a chunk (%v)", s.n, c != nil, k != nil)
		case !live:
			continue
		case (c == nil) == (k == nil):
			h.t.Errorf("hold %d is in a cohort: %v, in a chunk: %v", s.n, c != nil, k != nil)
		case c != nil && (h.r.mu.cohorts[c.quantum] != c || c.due.Sub(s.Until()) > h.r.quantum):
			h.t.Errorf("hold %d: its cohort is forgotten, or due %v after its end", s.n, c.due.Sub(s.Until()))
		case k != nil && k.members[s.m.place] != &s.m:
			h.t.Errorf("hold %d is not at its place in its chunk", s.n)
		}
		if k != nil && !known[k] {
			h.t.Errorf("hold %d: its chunk is forgotten", s.n)
		}
		slack := time.Duration(0)
		if c != nil {
			slack = h.r.quantum
		}
		if late := now.Sub(s.Until()); late > slack {
			h.t.Errorf("hold %d is live %v after its time", s.n, late)
		}
		placed++
		kept = append(kept, s)
	}
	h.holds = kept
	members := 0
	for _, c := range h.r.mu.cohorts {
		members += len(c.members)
	}
	wait := make(map[*batch]pending)
	for _, k := range chunks {
		for _, m := range k.members {
			if m != nil {
				members++
			}
		}
		if k.state != waiting {
			continue
		}
		p := h.retry[k]
		if p.tries != k.retries {
			p = pending{now, k.retries}
		}
		wait[k] = p
		if wait := now.Sub(p.since); wait > lease/20 {
			h.t.Errorf("a chunk has waited for %v to be sent again", wait)
		}
	}
	h.retry = wait
	if members != placed {
		h.t.Errorf("%d members in cohorts and chunks, %d live holds", members, placed)
	}
}

// drain answers everything until all holds have ended: nothing is left then.
func (h *randomHistory) drain() {
	h.lane(nil)
	for range 40 {
		for _, s := range h.take(len(h.flying())) {
			h.answer(s, all(script.Gone))
		}
		h.advance(time.Second)
		h.check()
	}
	if len(h.holds) > 0 {
		h.t.Errorf("%d holds are left", len(h.holds))
	}
	h.advance(lease)
	h.empty()
}

// TestEverythingAtOnce is for the race detector, and for what is left after it.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	stop := make(chan struct{})
	var network, users sync.WaitGroup
	network.Go(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for {
			select {
			case <-stop:
				return
			default:
			}
			l.clock.Advance(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
			l.mu.Lock()
			out := l.out
			l.out = nil
			l.mu.Unlock()
			for _, s := range out {
				switch rng.IntN(4) {
				case 0:
					l.fail(s, errAny)
				default:
					l.answer(s, func(int) int64 { return []int64{1, 1, 1, 0, -5}[rng.IntN(5)] })
				}
			}
		}
	})
	network.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				l.r.All()
				l.r.Resume()
			}
		}
	})
	for u := range 4 {
		users.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(u)))
			var mine []*subject
			for i := range 2000 {
				s := l.subject(u*10_000 + i)
				mine = append(mine, s)
				s.mu.Lock() // as the engine does it
				l.r.JoinFirst(&s.m, l.clock.Now())
				s.mu.Unlock()
				other := mine[rng.IntN(len(mine))]
				if rng.IntN(2) == 0 {
					l.r.Now(&other.m)
				} else {
					other.end()
				}
			}
			for _, s := range mine {
				s.end()
			}
		})
	}
	users.Wait()
	close(stop)
	network.Wait()
	for range 100 {
		for _, s := range l.take(len(l.flying())) {
			l.answer(s, all(script.Renewed))
		}
		l.advance(time.Second)
	}
	l.empty()
}
