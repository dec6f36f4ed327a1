package driver

import (
	"sync/atomic"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/lock"
)

// closing is how far the end of a table has come.
type closing struct {
	phase   atomic.Uint32         // a lock.Phase, which each shard has, too
	emptied chan struct{}         // capacity 1: the last entry left a shard
	refused atomic.Pointer[error] // the server's, to release a lock
	delayed atomic.Pointer[error] // the same, for now
}

// Closing reports whether nothing new is admitted, Closed whether holds end, too.
func (t *Table) Closing() bool { return t.closing.phase.Load() != uint32(lock.Open) }
func (t *Table) Closed() bool  { return t.closing.phase.Load() == uint32(lock.Closed) }

// Shut admits nothing new.
func (t *Table) Shut() { t.enter(lock.ShuttingDown) }

// Close admits nothing new, and tells so as the end of all.
func (t *Table) Close() {
	t.enter(lock.Closed)
	t.closing.delayed.Store(nil) // it was said to a Shutdown, perhaps long ago
}

// enter has all shards know how far the end has come.
func (t *Table) enter(p lock.Phase) {
	if !t.closing.phase.CompareAndSwap(uint32(lock.Open), uint32(p)) && p == lock.Closed {
		t.closing.phase.Store(uint32(p))
	}
	for s := range t.locked {
		s.Locks.Phase = max(s.Locks.Phase, p)
	}
}

// StopWaiting fails what waits.
func (t *Table) StopWaiting() {
	t.each((*lock.Entry).StopWaiting, (*counter.Counter).StopWaiting)
}

// EndHolds ends every hold, and has the locks and permits released.
func (t *Table) EndHolds() {
	t.each((*lock.Entry).EndHold, (*counter.Counter).End)
}

// LoseHolds ends the holds of a name, for that reason, and returns how many there were: a test does.
func (t *Table) LoseHolds(name string, why lock.Loss) (n int) {
	t.each(func(r *lock.Entry, rd *lock.Ready) {
		if r.Name == name && r.View().Depth > 0 {
			n++
			r.LoseHold(why, rd)
		}
	}, func(*counter.Counter, *counter.Ready) {})
	return n
}

// Drop gives up what is left, when the client has failed what was unanswered.
func (t *Table) Drop() {
	t.each((*lock.Entry).Drop, (*counter.Counter).Drop)
}

// Refused is what the server said when it refused to release a lock, for good or for now; nil
// if it did not.
func (t *Table) Refused() (forGood, forNow error) {
	if err := t.closing.refused.Load(); err != nil {
		forGood = *err
	}
	if err := t.closing.delayed.Load(); err != nil {
		forNow = *err
	}
	return forGood, forNow
}

// noteRefusal keeps what the server said to a release that is given up, or goes on for now.
func (t *Table) noteRefusal(refusal error, forGood bool) {
	if !t.Closing() {
		return
	}
	why := refusal // not sooner: it goes to the heap
	if forGood {
		t.closing.refused.Store(&why)
	} else {
		t.closing.delayed.Store(&why)
	}
}

func (t *Table) lookAgain() {
	select {
	case t.closing.emptied <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// AwaitEmpty waits until no entry is left, and reports whether that came before stop.
// Shutdown and Close may wait both.
func (t *Table) AwaitEmpty(stop <-chan struct{}) bool {
	for {
		if t.Entries() == 0 {
			t.lookAgain() // the token that woke us was the other's too
			return true
		}
		if t.World.Wait(t.closing.emptied, stop, nil) != 0 {
			return t.Entries() == 0
		}
	}
}

// Entries is how many names something is known of.
func (t *Table) Entries() (n int) {
	for s := range t.locked {
		n += s.len()
	}
	return n
}

// each visits all entries and counts, under their shard's lock, and does what the visits
// leave to be done.
func (t *Table) each(visit func(r *lock.Entry, rd *lock.Ready), count func(c *counter.Counter, rd *counter.Ready)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		entries, counts := s.Locks.All(), s.Counts()
		s.Unlock()
		for _, r := range entries {
			s.do(func(rd *lock.Ready) {
				if !r.Detached {
					visit(r, rd)
				}
			})
		}
		for _, c := range counts {
			counterOf(c).transition(count)
		}
	}
}
