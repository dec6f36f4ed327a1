//go:build linux || darwin

package linearizability

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// caller is a goroutine of a process.
type caller struct {
	*process
	rng *rand.Rand
}

func (c *caller) run() {
	for testkit.Pause(c.stop, 0) {
		c.step()
	}
	for _, i := range c.rng.Perm(len(contested)) {
		if !c.last(contested[i]) {
			return
		}
	}
}

func (c *caller) mutex(name string) engine.Mutex {
	if isFenced(name) {
		return c.e.FencedMutex(name)
	}
	return c.e.Mutex(name)
}

// last takes a lock when the faults are over. Everybody is served then, in good time: the lease is so long that
// a waiter that missed its wake-up would not come in.
func (c *caller) last(name string) bool {
	ctx, cancel := cputime.WithTimeout(context.Background(), processPatience)
	defer cancel()
	for {
		id := c.asks(name, "Lock")
		h, err := c.mutex(name).Lock(ctx, engine.Lease(time.Minute))
		if err == nil {
			c.work(id, h, 0)
			return true
		}
		c.failed(id, err)
		if !errors.Is(err, engine.ErrNotAcked) || ctx.Err() != nil { // a replica may have come back just now
			c.t.Errorf("after the faults: Lock(%q): %v", name, err)
			return false
		}
	}
}

// calls are those that ask for a lock.
var calls = []string{"Lock", "TryLock", "LockAsync"}

// asks says that a call begins.
func (c *caller) asks(name, call string) (id string) {
	id = fmt.Sprint(c.number, ".", c.serial.Add(1))
	say("asked", id, now(), name, call)
	return id
}

// failed says that a call has returned without a hold, and waits a little: unless another one has the
// lock, the servers are not there.
func (c *caller) failed(id string, err error) {
	say("failed", id, now(), whyFailed(err))
	if errors.Is(err, engine.ErrNotAcked) || errors.Is(err, engine.ErrUnavailable) {
		testkit.Pause(nil, c.upTo(50*time.Millisecond))
	}
	if !errors.Is(err, engine.ErrNotAcquired) || errors.Is(err, engine.ErrInvalid) || errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrWrongType) {
		c.t.Errorf("operation %s: %v", id, err)
	}
}

func whyFailed(err error) string {
	switch {
	case errors.Is(err, engine.ErrNotAcked):
		return "acks"
	case errors.Is(err, engine.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, engine.ErrHeld):
		return "held"
	case errors.Is(err, context.DeadlineExceeded):
		return "late"
	}
	return "other"
}

// step is one attempt to take a lock, and what follows.
func (c *caller) step() {
	name := contested[c.rng.IntN(len(contested))]
	if c.rng.IntN(2) == 0 {
		kind := []string{"plain", "fenced"}[c.rng.IntN(2)]
		name = fmt.Sprint(kind, "-cold", c.rng.IntN(historyCold))
	}
	m := c.mutex(name)
	ctx, cancel := context.WithCancel(c.patient)
	defer cancel()
	var h *engine.Hold
	var err error
	var lease time.Duration
	call := calls[max(0, c.rng.IntN(8)-5)] // most often Lock
	id := c.asks(name, call)
	switch call {
	case "TryLock":
		h, err = m.TryLock(ctx)
	case "LockAsync":
		f := m.LockAsync(ctx)
		_, _ = f.Await(c.soon(ctx))
		if c.rng.IntN(2) == 0 {
			// A grant that came before is ours until the release that Abandon begins.
			// Nobody could use it.
			f.Abandon()
			say("failed", id, now(), "abandoned")
			return
		}
		h, err = f.Await(ctx)
	default:
		switch c.rng.IntN(5) {
		case 0: // a caller that gives up
			short, cancel := context.WithTimeout(ctx, c.upTo(100*time.Millisecond))
			h, err = m.Lock(short)
			cancel()
		case 1:
			h, err = m.Lock(ctx, engine.Wait(time.Millisecond+c.upTo(100*time.Millisecond)))
		case 2:
			lease = 20*time.Millisecond + c.upTo(processLease)
			h, err = m.Lock(ctx, engine.Lease(lease))
		default:
			h, err = m.Lock(ctx)
		}
	}
	if err != nil {
		if c.patient.Err() != nil {
			c.t.Errorf("%s(%q), begun under faults, was not served %v after them", call, name, processPatience)
		}
		c.failed(id, err)
		return
	}
	c.work(id, h, lease)
}

func (c *caller) upTo(d time.Duration) time.Duration { return rand64(c.rng, d) }

func (c *caller) soon(ctx context.Context) context.Context {
	short, cancel := context.WithTimeout(ctx, c.upTo(50*time.Millisecond))
	context.AfterFunc(short, cancel)
	return short
}

// workTime is short, but in one of 500 holds: that one is renewed, or lost.
func (c *caller) workTime() time.Duration {
	switch n := c.rng.IntN(500); {
	case n == 0:
		return c.upTo(2 * processLease)
	case n < 60:
		return c.upTo(5 * time.Millisecond)
	}
	return 0
}

// work looks at the hold all the time, extends a fixed lease, and gives the hold back.
func (c *caller) work(id string, h *engine.Hold, lease time.Duration) {
	valid := h.ValidUntil()
	say("granted", id, now(), h.Owner(), h.Token(), at(valid))
	end := time.Now().Add(c.workTime())
	for {
		until := h.ValidUntil()
		if h.Err() != nil {
			break
		}
		if until.After(valid) { // it was live when it said so
			valid = until
			say("valid", id, at(valid))
		}
		if lease > 0 && c.rng.IntN(2) == 0 {
			err := h.Extend(c.soon(c.patient), lease+c.upTo(processLease))
			say("extended", id, now(), outcomeWord(err))
			lease = 0
			continue
		}
		left := time.Until(end)
		if left <= 0 {
			break
		}
		select {
		case <-h.Done():
		case <-time.After(min(left, c.upTo(10*time.Millisecond))):
		}
	}
	ctx, cancel := cputime.WithTimeout(context.Background(), 2*processPatience)
	defer cancel()
	if c.rng.IntN(8) == 0 {
		ctx = c.soon(ctx)
	}
	was := h.Err()
	say("unlocking", id, now())
	err := h.Unlock(ctx)
	say("unlocked", id, now(), outcomeWord(err))
	if was != nil && (err == nil || errors.Is(err, engine.ErrOutcomeUnknown)) {
		c.t.Errorf("Unlock of a hold that had ended (%v): %v", was, err)
	}
}

func outcomeWord(err error) string {
	var lost *engine.LostError
	switch {
	case errors.As(err, &lost):
		return "lost:" + lost.Reason.Code()
	case errors.Is(err, engine.ErrOutcomeUnknown):
		return "unknown"
	case err != nil:
		return strings.ReplaceAll(err.Error(), " ", "_")
	}
	return "ok"
}
