package watchdog

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
)

// Every Lock and Unlock takes the Renewer's lock, so a cohort of 25,000 must not hold it
// until all of them are in batches: when its first script goes out, the others are still
// where they were, and may leave.
func TestALargeCohortLocksTheRenewerForOneChunkAtATime(t *testing.T) {
	t.Parallel()
	for name, slotted := range map[string]bool{"one server": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.r.slotted.Store(slotted)
			const n = 1000
			holds := l.holds(n, time.Second)
			sent := 0
			l.r.cfg.Submit = func(_ uint16, req resp.DurableRequest) {
				if !l.r.mu.TryLock() {
					t.Error("a script is sent under the Renewer's lock")
					return
				}
				waiting := 0
				for _, s := range holds {
					if s.m.group != nil {
						waiting++
					}
				}
				l.r.mu.Unlock()
				sent += len(req.(*batch).list)
				if waiting+sent != n {
					t.Errorf("after %d were sent %d wait, want %d", sent, waiting, n-sent)
				}
				if sent <= batchSize { // the first one: all but its own members end
					for _, s := range holds {
						if s.m.chunk == nil {
							s.end()
						}
					}
				}
				if sent > batchSize {
					t.Error("a hold was renewed that had left its cohort before its turn")
				}
			}
			l.clock.Advance(time.Second)
			eventually(t, "the cohort has fired", func() bool {
				var b barrier
				b.passed = make(chan struct{})
				b.timer.Init(&b)
				l.wheel.Schedule(&b.timer, l.clock.Now())
				<-b.passed
				l.r.mu.Lock()
				defer l.r.mu.Unlock()
				return len(l.r.mu.cohorts) == 0
			})
			if sent == 0 {
				t.Error("nothing was sent")
			}
		})
	}
}

// One address may lead to many slots, through a proxy or because a node of a cluster was
// configured as the only server. Its refusal of a script costs no hold, and the next
// rounds go by slot.
func TestAServerThatRefusesSeveralSlotsGetsThemOneByOne(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holds := l.holds(60, time.Second) // of three slots
	l.advance(time.Second)
	l.fail(l.take(1)[0], &resp.ServerError{Code: "CROSSSLOT", Message: "CROSSSLOT Keys in request don't hash to the same slot"})
	for _, s := range l.take(60) {
		l.answer(s, all(script.Renewed))
	}
	for _, s := range holds {
		if s.times() != 1 || !s.live() {
			t.Errorf("hold %d: renewed %d times, live %v", s.n, s.times(), s.live())
		}
	}
	later := l.holds(60, time.Second)
	l.advance(time.Second)
	for _, s := range l.take(3) {
		slot := s.chunk.slot
		for _, m := range s.chunk.members {
			if m.slot != slot {
				t.Errorf("a script for slots %d and %d", slot, m.slot)
			}
		}
		l.answer(s, all(script.Renewed))
	}
	for _, s := range later {
		if s.times() != 1 {
			t.Errorf("hold %d: renewed %d times", s.n, s.times())
		}
	}
}

// BenchmarkFire is how long a cohort of 25,000 holds over random slots takes to be cut.
func BenchmarkFire(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		l := newLab(b)
		l.r.slotted.Store(true)
		l.r.cfg.Submit = func(uint16, resp.DurableRequest) {}
		l.r.mu.Lock()
		for i := range 25_000 {
			s := l.subject(i)
			s.m.slot = uint16(i * 7919 % slots)
			l.r.joinLocked(&s.m, l.clock.Now().Add(time.Hour))
		}
		var c *cohort
		for _, c = range l.r.mu.cohorts {
		}
		l.r.mu.Unlock()
		b.StartTimer()
		c.Fire(nil, 0)
	}
}

// Holds whose names the user may not use any more are asked for one by one, and seldom: a
// right that was withdrawn does not come back by asking, and a service may have very many.
func TestForbiddenLocksAreAskedForSeldom(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	forbidden, last := l.holds(batchSize-1, 10*time.Second), l.hold(batchSize, 10*time.Second)
	l.advance(10 * time.Second)
	for forbidden[0].live() {
		for _, s := range l.take(len(l.flying())) {
			if list := s.chunk.list; len(list) == 1 && list[0].Owner.ID == batchSize {
				l.answer(s, all(script.Renewed))
				continue
			}
			l.fail(s, &resp.ServerError{Code: "NOPERM", Message: "NOPERM No permissions to access a key"})
		}
		l.advance(100 * time.Millisecond)
	}
	if n := l.sent(); n < 3*batchSize || n > 6*batchSize {
		t.Errorf("%d scripts for %d locks in 17 s", n, batchSize)
	}
	if !last.live() || last.times() == 0 {
		t.Error("one that may be renewed was not")
	}
}
