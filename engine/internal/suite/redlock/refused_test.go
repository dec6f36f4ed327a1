package redlock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// What one server granted ends before the other answers. Nobody had the whole, so it was not
// lost: pawl exec would tell how a command ended that did not run.
func TestRedLock_NotAcquired_IsNotLost(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 2)
	margin := func(c *engine.Config) { c.Margin = 10 * time.Millisecond }
	v := s.Open(margin)
	p := s.Through(0, v, margin)
	p.Pause(faultproxy.All)
	notified := make(chan error, 1)
	v.Lock("x").TryLockAsync(testkit.Ctx(t), engine.MaxHold(time.Second)).OnComplete(func(_ *engine.Hold, err error) { notified <- err })
	testkit.Eventually(t, "the other has granted it", func() bool { return v[1].Stats().Acquired == 1 })
	testkit.Eventually(t, "that has ended", func() bool { return v[1].Stats().Held == 0 })
	p.Resume()
	err := testkit.Receive(t, notified)
	if !errors.Is(err, engine.ErrGrantTooLate) || errors.Is(err, engine.ErrLost) || !testkit.HasText(err, engine.MaxHoldReached.String()) {
		t.Errorf("%v", err)
	}
	s.Clean(v)
}

// Another has the first of three servers, and the third refuses. So what the second grants is given
// back.
func TestRedLock_VotesGivenBack_AreNotCalledGranted(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or the answers come after the wait
		s := testkit.Independent(t, 3)
		slices.SortFunc(s.Servers, func(a, b *redistest.Server) int { return strings.Compare(a.Addr(), b.Addr()) })
		other, v := s.Open(), s.Open()
		held := testkit.MustLock(t, other[0].Mutex("x"))
		s.Servers[2].Do("SET", "x", "string")
		testkit.MustUnlock(t, testkit.MustRedLock(t, v.Lock("warm"))) // connections and scripts
		_, err := v.Lock("x").Lock(testkit.Ctx(t), engine.Wait(quorum.LongestWait/2-50*time.Millisecond))
		if !errors.Is(err, engine.ErrHeld) || errors.Is(err, engine.ErrUnavailable) || !testkit.HasText(err, "granted by 0 of 3 servers") ||
			!testkit.HasText(err, s.Servers[0].Addr()+": held by another") || !testkit.HasText(err, s.Servers[1].Addr()+": it was granted, and given back") {
			t.Errorf("notified %v", err)
		}
		s.Servers[2].Do("DEL", "x")
		testkit.MustUnlock(t, held)
		s.Clean(other, v)
	})
}

// The third server is silent. Before it answers, another has the lock there and at the first, which
// was emptied, and gives it back.
func TestRedLock_SlowVote_DoesNotReplaceOneMissingBefore(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	p := s.Through(2, v)
	testkit.MustUnlock(t, testkit.MustRedLock(t, v.Lock("warm")))
	p.Pause(faultproxy.All)
	h := testkit.MustRedLock(t, v.Lock("x"))
	s.Servers[0].Do("FLUSHALL")
	other := testkit.Voters{testkit.Open(t, s.Servers[0].URL()), testkit.Open(t, s.Servers[2].URL())}
	testkit.MustUnlock(t, testkit.MustRedLock(t, other.Lock("x")))
	<-time.After(300 * time.Millisecond) // then it does not count since the others
	p.Resume()
	testkit.Receive(t, h.Done())
	var lost *engine.LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.RemovedOnServer || !testkit.HasText(err, "1 of 3") {
		t.Errorf("Err: %v", err)
	}
	s.Clean(v)
}

// Another has two of five servers, the third refuses and the last hangs. Once the third has refused for
// as long as a TryLock is patient, this cannot get it, and waits only to know why. What it has is free
// meanwhile for the other, who needs it.
func TestRedLock_TryLock_KeepsNothingThatCannotHelp(t *testing.T) {
	t.Parallel()
	for want, refuse := range map[error][]string{
		engine.ErrUnavailable: {"CONFIG", "SET", "maxmemory", "1"},
		engine.ErrWrongType:   {"SET", "x", "string"},
	} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			s := testkit.Independent(t, 5)
			other, v := s.Open(), s.Open()
			v[2] = testkit.Open(t, s.Servers[2].URL(), func(c *engine.Config) { c.CommandTimeout = 500 * time.Millisecond })
			p := s.Through(4, v, testkit.Patient)
			testkit.MustLock(t, other[0].Mutex("x"))
			testkit.MustLock(t, other[1].Mutex("x"))
			s.Servers[2].Do(refuse...)
			p.Pause(faultproxy.All)
			try := v.Lock("x").TryLockAsync(testkit.Ctx(t))
			testkit.Eventually(t, "the fourth has granted it", func() bool { return v[3].Stats().Acquired == 1 })
			testkit.Eventually(t, "it is given back", func() bool { return s.Servers[3].Do("EXISTS", "x") == int64(0) })
			select {
			case <-try.Done():
				_, err := try.Result()
				t.Errorf("it did not wait for the last: %v", err)
			default:
			}
			p.Resume()
			if _, err := try.Await(testkit.Ctx(t)); !errors.Is(err, want) || errors.Is(err, engine.ErrHeld) {
				t.Errorf("%v", err)
			}
			testkit.Eventually(t, "nothing is left at the last", func() bool { return s.Servers[4].Do("EXISTS", "x") == int64(0) })
		})
	}
}
