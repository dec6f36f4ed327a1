package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestRedLock_Majority_Holds(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	a, b := s.Open(), s.Open()
	h := testkit.MustRedLock(t, a.Lock("x"))
	testkit.Eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	if left := time.Until(h.ValidUntil()); h.Err() != nil || left < 20*time.Second || left > 27*time.Second {
		t.Errorf("%v, valid for %v", h.Err(), left)
	}
	_, err := b.Lock("x").TryLock(testkit.Ctx(t))
	var refused *engine.NotAcquiredError
	if !errors.Is(err, engine.ErrHeld) || errors.Is(err, engine.ErrUnavailable) || !errors.As(err, &refused) || refused.TTL < 20*time.Second {
		t.Errorf("TryLock: %v", err)
	}
	// It does not wait for the others when three have refused.
	if !testkit.HasText(err, "granted by 0 of 5 servers, 3 are needed: 127.0.0.1:") || strings.Count(err.Error(), ": held by another") < 3 {
		t.Errorf("the text: %v", err)
	}
	if ran, err := b.Lock("x").TryDo(testkit.Ctx(t), nil); ran || err != nil {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
	if _, err := b.Lock("x").Lock(testkit.Ctx(t), engine.Wait(2*time.Second)); !errors.Is(err, engine.ErrHeld) || !testkit.HasText(err, "Wait is over") {
		t.Errorf("Wait: %v", err)
	}
	next := b.Lock("x").LockAsync(testkit.Ctx(t))
	testkit.MustUnlock(t, h)
	testkit.Receive(t, h.Done())
	if err := h.Err(); err != engine.ErrReleased || h.ValidUntil().After(time.Now()) || len(h.Servers()) != 0 {
		t.Errorf("after Unlock: %v, valid until %v, at %v", err, h.ValidUntil(), h.Servers())
	}
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
		t.Errorf("Unlock again: %v", err)
	}
	h2, err := next.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h2)
	s.Clean(a, b)
}

// A minority that is down delays neither the grant nor the release.
func TestRedLock_TwoOfFiveDown_IsGranted(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	v := s.Open()
	s.Servers[0].Kill()
	s.Servers[3].Kill()
	for range 20 {
		start := cputime.Now()
		h := testkit.MustRedLock(t, v.Lock("x"))
		testkit.MustUnlock(t, h)
		if d := start.Elapsed(); d > 2*time.Second {
			t.Errorf("took %v", d)
		}
	}
	h, err := v.Lock("x").TryLock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Servers(); len(got) != 3 {
		t.Errorf("held at %v", got)
	}
	// Those that come back join.
	s.Servers[0].Restart()
	s.Servers[3].Restart()
	testkit.Eventually(t, "all five have it", func() bool { return len(h.Servers()) == 5 })
	testkit.MustUnlock(t, h)
	s.Clean(v)
}

// Two hang: their sockets take what is sent, and nothing comes back.
func TestRedLock_TwoOfFiveHang_IsGranted(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	v := s.Open()
	h := testkit.MustRedLock(t, v.Lock("x"))
	testkit.Eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	for _, one := range s.Servers[:2] {
		one.Stop()
		defer func() { _ = one.Process.Cont() }()
	}
	start := cputime.Now()
	testkit.MustUnlock(t, h)
	if d := start.Elapsed(); d > 2*time.Second {
		t.Errorf("the release took %v", d)
	}
	for _, lock := range []func() (*engine.Hold, error){
		func() (*engine.Hold, error) { return v.Lock("y").Lock(testkit.Ctx(t)) },
		func() (*engine.Hold, error) { return v.Lock("z").TryLock(testkit.Ctx(t)) },
	} {
		start := cputime.Now()
		h, err := lock()
		if err != nil {
			t.Fatal(err)
		}
		if d := start.Elapsed(); d > 2*time.Second {
			t.Errorf("the grant took %v", d)
		}
		if n := len(h.Servers()); n != 3 {
			t.Errorf("held at %d servers", n)
		}
		testkit.MustUnlock(t, h)
	}
	for _, one := range s.Servers[:2] {
		one.Cont()
	}
	s.Clean(v) // what they granted late is given back
}

// One server loses its data while the lock is held: it is asked again, and nobody else gets in.
func TestRedLock_ServerRestartsEmpty_IsAskedAgain(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	a, b := s.Open(testkit.LeaseOf(3*time.Second)), s.Open()
	h := testkit.MustRedLock(t, a.Lock("x"))
	testkit.Eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	for _, one := range s.Servers[:3] {
		one.Kill()
		one.Restart()
		testkit.Eventually(t, "the server has it again", func() bool { return len(testkit.Fields(t, one, "x")) == 1 && len(h.Servers()) == 5 })
		if _, err := b.Lock("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("TryLock of another: %v", err)
		}
		before := h.ValidUntil()
		testkit.Eventually(t, "the others are renewed", func() bool { return h.ValidUntil().After(before.Add(time.Second)) })
	}
	if err := h.Err(); err != nil {
		t.Error(err)
	}
	testkit.MustUnlock(t, h)
	s.Clean(a, b)
}

// All servers are emptied. Each is found so by its own renewal and would grant it again; but
// others may have had it meanwhile.
func TestRedLock_RemovedEverywhere_IsLost(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	v := s.Open(testkit.LeaseOf(3 * time.Second))
	h := testkit.MustRedLock(t, v.Lock("x"))
	testkit.Eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	ctx := h.Context(context.Background())
	for _, one := range s.Servers {
		one.Do("FLUSHALL")
	}
	testkit.Receive(t, h.Done())
	var lost *engine.LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.RemovedOnServer || !testkit.HasText(err, "3 are needed") || !errors.Is(context.Cause(ctx), engine.ErrLost) {
		t.Errorf("%v; context: %v", err, context.Cause(ctx))
	}
	t.Log(h.Err())
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	s.Clean(v) // what was granted again is given back
}

// Three of five are gone: the hold ends before their leases do, and says which.
func TestRedLock_ThreeOfFiveLost_IsLostInTime(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Independent(t, 5)
		v := s.Open(testkit.LeaseOf(2 * time.Second))
		h := testkit.MustRedLock(t, v.Lock("x"))
		testkit.Eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
		ctx := h.Context(context.Background())
		killed := time.Now()
		for _, one := range s.Servers[1:4] {
			one.Stop()
			defer func() { _ = one.Process.Cont() }()
		}
		until := h.ValidUntil()
		testkit.Receive(t, ctx.Done())
		testkit.Receive(t, h.Done())
		if d := time.Since(killed); d > 2*time.Second || time.Until(until) > 0 && time.Until(until) > 100*time.Millisecond {
			t.Errorf("told after %v, %v before ValidUntil", d, time.Until(until))
		}
		var lost *engine.LostError
		err := h.Err()
		if !errors.As(err, &lost) || lost.Reason != engine.NotRenewed || lost.Name != "x" || !testkit.HasText(err, s.Servers[1].Addr()+": no renewal") || strings.Contains(err.Error(), s.Servers[0].Addr()) {
			t.Errorf("Err: %v", err)
		}
		for _, one := range []int{0, 4} {
			testkit.Eventually(t, "what is left is given back", func() bool { return s.Servers[one].Do("EXISTS", "x") == int64(0) })
		}
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		for _, one := range s.Servers[1:4] {
			one.Cont()
		}
		s.Clean(v)
	})
}

// One, and two, are possible; none of them may be missing.
func TestRedLock_OneOrTwoServers_NeedsAll(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 2)
	v := s.Open()
	for n := 1; n <= 2; n++ {
		h := testkit.MustRedLock(t, v[:n].Lock("x"))
		if got := len(h.Servers()); got != n {
			t.Errorf("held at %d of %d", got, n)
		}
		testkit.MustUnlock(t, h)
	}
	held := testkit.MustLock(t, s.Open()[1].Mutex("x"))
	if _, err := v.Lock("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one of two is held: %v", err)
	}
	testkit.MustUnlock(t, held)
	s.Clean(v)
}

// Many want it, in two processes' worth of engines: all get it, one at a time.
func TestRedLock_Contenders_MakeProgress(t *testing.T) {
	t.Parallel()
	contend(t, 0, 12)
}

// Now everybody needs all that are left.
func TestRedLock_ContendersForABareMajority_MakeProgress(t *testing.T) {
	t.Parallel()
	contend(t, 2, 6)
}

func contend(t *testing.T, down, rounds int) {
	s := testkit.Independent(t, 5)
	const processes, each = 4, 3
	inside, sections := 0, 0
	var wg sync.WaitGroup
	var all []testkit.Voters
	for range processes {
		all = append(all, s.Open())
	}
	for _, one := range s.Servers[:down] {
		one.Kill()
	}
	start := time.Now()
	for process, v := range all {
		if process%2 == 1 { // the order in which they are given does not matter
			v = slices.Clone(v)
			slices.Reverse(v)
		}
		for range each {
			wg.Go(func() {
				for range rounds {
					h, err := v.Lock("x").Lock(testkit.Ctx(t))
					if err != nil {
						t.Error(err)
						return
					}
					if inside++; inside != 1 { // the race detector looks, too
						t.Error("two are inside")
					}
					sections++
					testkit.Stay(s.Servers[down])
					inside--
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d sections in %v", sections, time.Since(start))
	if sections != processes*each*rounds {
		t.Errorf("%d sections", sections)
	}
	s.Clean(all...)
}
