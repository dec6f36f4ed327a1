package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A part tells of its lock, and only the whole ends it.
func TestHold_Parts_TellOfOneLockEach(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	whole, err := Multi(e.FencedMutex("a"), e.FencedMutex("b")).Lock(ctxT(t), Lease(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	parts := whole.Parts()
	if len(parts) != 2 || parts[0].Name() != "a" || parts[1].Name() != "b" {
		t.Fatalf("parts %v", parts)
	}
	if whole.Name() != "a and 1 more" || whole.Owner() != "" || whole.Token() != 0 || whole.PermitIDs() != nil {
		t.Errorf("the whole: %q of %q, token %d, permits %v", whole.Name(), whole.Owner(), whole.Token(), whole.PermitIDs())
	}
	if !slices.Equal(whole.Servers(), []string{s.Addr()}) {
		t.Errorf("servers %v", whole.Servers())
	}
	for _, p := range parts {
		if p.Token() != 1 || !strings.HasPrefix(p.Owner(), e.ID()) || p.Err() != nil || p.Parts() != nil {
			t.Errorf("%v: token %d, owner %q, %v, parts %v", p, p.Token(), p.Owner(), p.Err(), p.Parts())
		}
		for what, err := range map[string]error{
			"Unlock":      p.Unlock(ctxT(t)),
			"UnlockAsync": errOf(p.UnlockAsync().Await(ctxT(t))),
			"Extend":      p.Extend(ctxT(t), time.Hour),
		} {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `"a", "b"`) {
				t.Errorf("%s of a part: %v", what, err)
			}
		}
		if left := time.Until(p.ValidUntil()); left > time.Minute || left < 30*time.Second {
			t.Errorf("%v is valid for %v", p, left)
		}
		if again, err := e.FencedMutex(p.Name()).Lock(p.Context(ctxT(t))); err != nil || again.Token() != 1 {
			t.Errorf("under the context of a part: %v, %v", again, err)
		}
	}
	mustUnlock(t, whole)
	for _, p := range parts {
		if p.Err() != ErrReleased {
			t.Errorf("%v after the Unlock of the whole: %v", p, p.Err())
		}
	}
	s.Do("DEL", "redisson_lock_token:{a}", "redisson_lock_token:{b}")
	clean(t, s)
}

// The parts of a RedLock are those that its servers have.
func TestHold_PartsOfARedLock_AreItsServers(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	h := mustRedLock(t, v.lock("x"))
	eventually(t, "all three join", func() bool { return len(h.Parts()) == 3 })
	for i, p := range h.Parts() {
		if !slices.Equal(p.Servers(), []string{s.servers[i].Addr()}) || p.Owner() == "" {
			t.Errorf("%v: servers %v, owner %q", p, p.Servers(), p.Owner())
		}
		if err := p.Unlock(ctxT(t)); !errors.Is(err, ErrInvalid) {
			t.Errorf("Unlock of a part: %v", err)
		}
	}
	mustUnlock(t, h)
	s.clean(v)
}

// Each re-entry of a hold of a FencedMutex has its token, through whatever Mutex, and a FencedMutex
// never returns a hold without one.
func TestHold_Token_IsThatOfTheFencedGrant(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	fenced := mustLock(t, e.FencedMutex("x"))
	plain, err := e.Mutex("x").Lock(fenced.Context(ctxT(t)))
	if err != nil || plain.Token() != fenced.Token() || fenced.Token() != 1 {
		t.Fatalf("%v, %v", plain, err)
	}
	again, err := e.FencedMutex("x").Lock(plain.Context(ctxT(t)))
	if err != nil || again.Token() != 1 {
		t.Errorf("a FencedMutex under a Mutex under a FencedMutex: %v, %v", again, err)
	}
	mustUnlock(t, again)
	mustUnlock(t, plain)
	mustUnlock(t, fenced)
	bare := mustLock(t, e.Mutex("x"))
	if bare.Token() != 0 {
		t.Errorf("a Mutex has the token %d", bare.Token())
	}
	if _, err := e.FencedMutex("x").Lock(bare.Context(ctxT(t))); !errors.Is(err, ErrKind) {
		t.Errorf("under a hold without a token: %v", err)
	}
	mustUnlock(t, bare)
}

// Code that takes a Lock works with each of them.
func TestLock_EveryKind_IsOne(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	e := v[0]
	if err := e.PermitSemaphore("p").SetPermits(ctxT(t), 2); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Lock{
		"m": e.Mutex("m"), "f": e.FairMutex("f"), "s": e.SpinMutex("s"), "t": e.FencedMutex("t"),
		"r": e.RWMutex("r").Reader(), "w": e.RWMutex("w").Writer(),
		"a and 1 more": e.Many("a", "b"), "x": v.lock("x"), "p": e.PermitSemaphore("p").Permits(2),
	} {
		if l.Name() != name {
			t.Errorf("%v is called %q", l, l.Name())
		}
		held := func(how string, h *Hold, err error) {
			if err != nil || h.Err() != nil || h.Name() != name {
				t.Errorf("%s of %s: %v, %v", how, name, h, err)
				return
			}
			mustUnlock(t, h)
		}
		h, err := l.Lock(ctxT(t))
		held("Lock", h, err)
		h, err = l.TryLock(ctxT(t))
		held("TryLock", h, err)
		h, err = l.LockAsync(ctxT(t)).Await(ctxT(t))
		held("LockAsync", h, err)
		h, err = l.TryLockAsync(ctxT(t)).Await(ctxT(t))
		held("TryLockAsync", h, err)
		ran := 0
		run := func(_ context.Context, h *Hold) error { ran++; return h.Err() }
		if err := l.Do(ctxT(t), run); err != nil {
			t.Errorf("Do of %s: %v", name, err)
		}
		if did, err := l.TryDo(ctxT(t), run); !did || err != nil || ran != 2 {
			t.Errorf("TryDo of %s: %v, %v", name, did, err)
		}
	}
	s.servers[0].Do("DEL", "p", "redisson_lock_token:{t}")
	s.clean(v)
}

// A MultiLock that is dropped is reported once, also if one of its locks was lost before.
func TestHold_ManyDroppedAfterALoss_IsReportedOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), leaseOf(2*time.Second))
	func() {
		h := mustLockMany(t, e, []string{"a", "b"})
		s.Do("DEL", "a")
		receive(t, h.Done())
	}()
	eventually(t, "it is noticed", func() bool { runtime.GC(); return e.Stats().Leaked == 1 })
}
