package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Another has the first of three servers, and the third refuses. So what the second grants is given
// back.
func TestVotesThatWereGivenBackAreNotCalledGranted(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	slices.SortFunc(s.servers, func(a, b *redistest.Server) int { return strings.Compare(a.Addr(), b.Addr()) })
	other, v := s.open(), s.open()
	held := mustLock(t, other[0].Mutex("x"))
	s.servers[2].Do("SET", "x", "string")
	mustRelease(t, mustRedLock(t, v.lock("warm"))) // connections and scripts
	_, err := v.lock("x").Lock(ctxT(t), Wait(quorum.LongestWait/2-50*time.Millisecond))
	if !errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) || !hasText(err, "granted by 0 of 3 servers") ||
		!hasText(err, s.servers[0].Addr()+": held by another") || !hasText(err, s.servers[1].Addr()+": it was granted, and given back") {
		t.Errorf("told %v", err)
	}
	s.servers[2].Do("DEL", "x")
	mustUnlock(t, held)
	s.clean(other, v)
}

// The third server is slow. Before it answers, another has the lock there and at the first, which
// was emptied, and gives it back.
func TestSlowVoteDoesNotReplaceOneThatWasMissingBefore(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	p := s.through(2, v)
	mustRelease(t, mustRedLock(t, v.lock("warm")))
	p.Delay(faultproxy.All, 500*time.Millisecond, 500*time.Millisecond)
	h := mustRedLock(t, v.lock("x"))
	s.servers[0].Do("FLUSHALL")
	other := voters{open(t, s.servers[0].URL()), open(t, s.servers[2].URL())}
	mustRelease(t, mustRedLock(t, other.lock("x")))
	receive(t, h.Done())
	var lost *LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != GoneOnServer || !hasText(err, "1 of 3") {
		t.Errorf("Err: %v", err)
	}
	p.Delay(faultproxy.All, 0, 0)
	s.clean(v)
}

// One of three servers refuses for good, another one is held. A caller that stops waiting is told both.
func TestWaiterIsToldOfAServerThatRefusesForGood(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	other, v := s.open(), s.open()
	locks := v.lock("x")
	locks.all.order = []int{0, 1, 2}
	held := mustLock(t, other[0].Mutex("x"))
	s.servers[2].Do("SET", "x", "string")
	mustRelease(t, mustRedLock(t, v.lock("warm"))) // connections and scripts
	_, err := locks.Lock(ctxT(t), Wait(quorum.LongestWait/2-50*time.Millisecond))
	if !errors.Is(err, ErrHeld) || errors.Is(err, ErrWrongType) || !hasText(err, s.servers[2].Addr()+": "+partText(ErrWrongType)) {
		t.Errorf("told %v", err)
	}
	s.servers[2].Do("DEL", "x")
	mustUnlock(t, held)
	s.clean(other, v)
}

// Another has two of five servers, the third refuses and the last hangs. Once the third has refused for
// as long as a TryLock is patient, this cannot get it, and waits only to know why. What it has is free
// meanwhile for the other, who needs it.
func TestTryLockOfARedLockKeepsNothingThatCannotHelp(t *testing.T) {
	t.Parallel()
	for want, refuse := range map[error][]string{
		ErrUnavailable: {"CONFIG", "SET", "maxmemory", "1"},
		ErrWrongType:   {"SET", "x", "string"},
	} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			s := independent(t, 5)
			other, v := s.open(), s.open()
			v[2] = open(t, s.servers[2].URL(), func(c *Config) { c.CommandTimeout = 500 * time.Millisecond })
			p := s.through(4, v, patient)
			mustLock(t, other[0].Mutex("x"))
			mustLock(t, other[1].Mutex("x"))
			s.servers[2].Do(refuse...)
			p.Pause(faultproxy.All)
			try := v.lock("x").TryLockAsync(ctxT(t))
			eventually(t, "the fourth has granted it", func() bool { return v[3].Stats().Acquired == 1 })
			eventually(t, "it is given back", func() bool { return s.servers[3].Do("EXISTS", "x") == int64(0) })
			select {
			case <-try.Done():
				_, err := try.Result()
				t.Errorf("it did not wait for the last: %v", err)
			default:
			}
			p.Resume()
			if _, err := try.Await(ctxT(t)); !errors.Is(err, want) || errors.Is(err, ErrHeld) {
				t.Errorf("%v", err)
			}
			eventually(t, "nothing is left at the last", func() bool { return s.servers[4].Do("EXISTS", "x") == int64(0) })
		})
	}
}
