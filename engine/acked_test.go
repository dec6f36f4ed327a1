package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// notAcked fails the test unless err says so many of so many.
func notAcked(t testing.TB, err error, acked, wanted int) {
	t.Helper()
	var short *AckError
	if !errors.As(err, &short) || !errors.Is(err, ErrNotAcked) || short.Acked != acked || short.Wanted != wanted {
		t.Fatalf("want %d of %d replicas, got: %v", acked, wanted, err)
	}
	if text := fmt.Sprintf("%d of %d replicas", acked, wanted); !hasText(err, text) {
		t.Errorf("%q does not say %q", err, text)
	}
}

// grantedAgain waits until "all" is granted, with so many.
func grantedAgain(t *testing.T, e *Engine, name string, acked int) {
	t.Helper()
	eventually(t, "it is granted again", func() bool {
		h, err := e.Mutex(name).Lock(ctxT(t), Acked(AllReplicas))
		if err != nil {
			return false
		}
		defer mustUnlock(t, h)
		return h.Acked() == acked
	})
}

// With a silent replica a group takes AckTimeout, and those behind it wait for theirs.
func TestTryLockBehindAnswersThatDoNotComeEnds(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		r := redistest.StartReplicated(t, 1, redistest.Line("repl-timeout 300"))
		primary := r.Servers()[0]
		link := r.Through(r.Servers()[1], primary)
		e := open(t, primary.URL(), func(c *Config) { c.AckTimeout, c.CommandTimeout = time.Minute, 300*time.Millisecond })
		mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
		link.Hold()
		stuck := e.Mutex("stuck").LockAsync(ctxT(t), Acked(1))
		eventually(t, "its WAIT is out", func() bool { return primary.Do("EXISTS", "stuck") == int64(1) })
		e.table.Machine.AckTimeout = 100 * time.Millisecond // as the deadline sees it
		_, err := e.Mutex("x").TryLock(ctxT(t), Acked(1))
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%v", err)
		}
		if primary.Do("EXISTS", "x") != int64(0) {
			t.Error("it was sent, into the WAIT")
		}
		// So does Wait: nobody has said that somebody else holds the lock.
		_, err = e.Mutex("y").Lock(ctxT(t), Acked(1), Wait(50*time.Millisecond))
		if errors.Is(err, ErrHeld) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
		stuck.Abandon()
		link.Release()
		clean(t, primary, e)
	})
}

// A re-entry without a Lease lasts as long as the hold that it re-enters, and so its
// replicas are those of the latest renewal of that.
func TestAckedOfAReentryIsThatOfTheLeaseThatItFollows(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	h := mustLock(t, e.Mutex("x"))
	child := mustReenter(t, e.Mutex("x"), mustReenter(t, e.Mutex("x"), h))
	fixed := mustReenter(t, e.Mutex("x"), child, Lease(time.Minute))
	now := e.clock.Now()
	oneOf(h).Subject().Renewed(now, now, e.cfg.Lease, 2)
	if h.Acked() != 2 || child.Acked() != 2 || fixed.Acked() != 0 {
		t.Errorf("acknowledged by %d, the re-entry by %d, one with a lease of its own by %d", h.Acked(), child.Acked(), fixed.Acked())
	}
}

func TestBadReplicasAreRefusedWithTheirName(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	for _, r := range []Replicas{-3, maxReplicas + 1} {
		if _, err := e.Mutex("x").Lock(ctxT(t), Acked(r)); !errors.Is(err, ErrInvalid) || !hasText(err, "Acked") {
			t.Errorf("Acked(%d): %v", r, err)
		}
		if _, err := New(ctxT(t), Config{Replicas: r}); !errors.Is(err, ErrInvalid) || !hasText(err, "Config.Replicas") {
			t.Errorf("Config.Replicas %d: %v", r, err)
		}
	}
	if _, err := New(ctxT(t), Config{AckTimeout: time.Microsecond}); !errors.Is(err, ErrInvalid) || !hasText(err, "AckTimeout") {
		t.Errorf("%v", err)
	}
	for _, s := range []string{"some", "-1", "1.5", "", "99999999999999999999"} {
		if _, err := ParseURL("redis://h?replicas=" + s); !errors.Is(err, ErrInvalid) || !hasText(err, "replicas") {
			t.Errorf("replicas=%s: %v", s, err)
		}
	}
	for s, want := range map[string]Replicas{"all": AllReplicas, "majority": MajorityOfReplicas, "0": 0, "2": 2} {
		c, err := ParseURL("redis://h?ack_timeout=250ms&replicas=" + s)
		if err != nil || c.Replicas != want || c.AckTimeout != 250*time.Millisecond {
			t.Errorf("%s: %+v, %v", s, c, err)
		}
	}
	if c := (Config{Lease: 3 * time.Second}).withDefaults(); c.AckTimeout != 500*time.Millisecond {
		t.Errorf("AckTimeout %v at a lease of 3s", c.AckTimeout)
	}
}
