package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A reader that waits for a writer of its own process is told that it may not listen, and the
// server is not asked for the channel for ever.
func TestAReaderBehindAWriterIsToldThatTheChannelIsRefused(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.Do("ACL", "SETUSER", "joe", "on", ">secret", "~*", "+@all", "resetchannels", "&other:*")
	e := open(t, "redis://joe:secret@"+s.Addr())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	if _, err := l.Reader().Lock(ctxT(t), Wait(5*time.Second)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "redisson_rwlock:{x}") {
		t.Errorf("it is told: %v", err)
	}
	mustUnlock(t, w)
	clean(t, s, e)
}

// What is left of a writer's MinHold keeps writers out while somebody reads beside it, and after
// that, but no longer; readers come in.
func TestAMinHoldOfAWriterThatLeavesAReader(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	l, far := e.RWMutex("x"), other.RWMutex("x")
	w := mustLock(t, l.Writer(), MinHold(time.Minute), MaxHold(time.Hour))
	r, err := l.Downgrade(ctxT(t), w)
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, mustLock(t, far.Reader(), Wait(5*time.Second)))
	mustUnlock(t, r)
	mustUnlock(t, mustLock(t, far.Reader(), Wait(5*time.Second)))
	if _, err := far.Writer().TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("a writer before MinHold is over: %v", err)
	}
	if left := pttl(t, s, "x"); left < 50*time.Second || left > time.Minute {
		t.Errorf("the lock is kept for %v", left)
	}
	s.Do("FLUSHALL")

	w = mustLock(t, l.Writer(), MinHold(100*time.Millisecond))
	if r, err = l.Downgrade(ctxT(t), w); err != nil {
		t.Fatal(err)
	}
	eventually(t, "MinHold is over", func() bool { return s.Do("DBSIZE").(int64) == 2 })
	mustUnlock(t, r)
	mustUnlock(t, mustLock(t, far.Writer(), Wait(5*time.Second)))
	clean(t, s, e, other)
}

// A Downgrade that fails leaves nothing with the writer.
func TestADowngradeThatFailsLeavesNoContext(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	for range 10 {
		if _, err := l.Downgrade(context.Background(), w, MinHold(time.Second)); !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
	}
	eventually(t, "the contexts are forgotten", func() bool {
		w.h.Shard().Lock()
		defer w.h.Shard().Unlock()
		return len(w.h.Contexts()) == 0
	})
	mustUnlock(t, w)
	clean(t, s, e)
}

// The writer was taken away by force, and another wrote. The context ends when the reader is granted, so
// nobody waits for what the release finds.
func TestADowngradeOfALostWriterFailsThoughItsContextEnds(t *testing.T) {
	t.Parallel()
	s := server(t)
	ctx, cancel := context.WithCancel(ctxT(t))
	e, other := open(t, s.URL(), func(c *Config) {
		c.Hooks.Acquired = func(a AcquiredEvent) {
			if a.Kind == "read" && a.Err == nil {
				cancel()
			}
		}
	}), open(t, s.URL())
	l, far := e.RWMutex("x"), other.RWMutex("x")
	w := mustLock(t, l.Writer(), Lease(time.Minute))
	if done, err := far.Writer().ForceUnlock(ctxT(t)); !done || err != nil {
		t.Fatal(done, err)
	}
	mustUnlock(t, mustLock(t, far.Writer()))
	if _, err := l.Downgrade(ctx, w); !errors.Is(err, ErrLost) {
		t.Errorf("Downgrade: %v", err)
	}
	if ctx.Err() == nil || !errors.Is(w.Err(), ErrLost) {
		t.Errorf("the context: %v; the writer: %v", ctx.Err(), w.Err())
	}
	clean(t, s, e, other)
}

// A reader that is asked for beside a writer is granted though that was deleted. The writer is told before.
func TestAReaderBesideADeletedWriterEndsThat(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	for name, lock := range map[string]func(ctx context.Context) (*Hold, error){
		"Lock":    func(ctx context.Context) (*Hold, error) { return l.Reader().Lock(ctx) },
		"TryLock": func(ctx context.Context) (*Hold, error) { return l.Reader().TryLock(ctx) },
	} {
		w := mustLock(t, l.Writer(), Lease(time.Minute))
		s.Do("DEL", "x")
		r, err := lock(context.WithoutCancel(w.Context(ctxT(t))))
		if err != nil {
			t.Fatal(name, err)
		}
		var lost *LostError
		if err := w.Err(); !errors.As(err, &lost) || lost.Reason != GoneOnServer {
			t.Errorf("%s: the writer: %v", name, err)
		}
		mustUnlock(t, r)
	}
	clean(t, s, e)
}

// A read lock that comes of a Downgrade is one of its own, also under the context of another.
func TestADowngradeUnderAReadersContextIsNoReentry(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	beside, err := l.Reader().Lock(w.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Downgrade(beside.Context(ctxT(t)), w)
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, beside)
	if err := r.Err(); err != nil || r.Owner() == beside.Owner() {
		t.Errorf("%v, as %s and %s", err, r.Owner(), beside.Owner())
	}
	mustUnlock(t, r)
	clean(t, s, e)
}
