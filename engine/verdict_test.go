package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Acquisitions that fail before anything is queued or sent have a verdict like any
// other: it is counted and told once.
func TestAcquisitionThatFailsAtOnceIsCountedAndToldOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	told := make(chan AcquiredEvent, 64)
	e := open(t, s.URL(), func(c *Config) { c.Hooks.Acquired = func(ev AcquiredEvent) { told <- ev } })
	h := mustLock(t, e.Mutex("held"))
	if ev := receive(t, told); ev.Name != "held" || ev.Err != nil {
		t.Fatalf("the grant: %+v", ev)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, x := range []struct {
		what string
		ctx  context.Context
		m    Mutex
		opts []Option
		want error
	}{
		{"a context that has ended", ended, e.Mutex("x"), nil, context.Canceled},
		{"a bad option", ctxT(t), e.SpinMutex("x"), []Option{Lease(-1)}, ErrInvalid},
		{"a bad name", ctxT(t), e.Mutex("x\x00y"), nil, ErrInvalid},
		{"a re-entry that is not wanted", h.Context(ctxT(t)), e.Mutex("held"), []Option{NonReentrant()}, ErrReentry},
	} {
		for form, acquire := range map[string]func() error{
			"Lock":         func() error { _, err := x.m.Lock(x.ctx, x.opts...); return err },
			"TryLock":      func() error { _, err := x.m.TryLock(x.ctx, x.opts...); return err },
			"LockAsync":    func() error { _, err := x.m.LockAsync(x.ctx, x.opts...).Await(ctxT(t)); return err },
			"TryLockAsync": func() error { _, err := x.m.TryLockAsync(x.ctx, x.opts...).Await(ctxT(t)); return err },
		} {
			before := e.Stats().NotAcquired
			err := acquire()
			if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, x.want) {
				t.Errorf("%s, %s: %v", x.what, form, err)
			}
			if n := e.Stats().NotAcquired - before; n != 1 {
				t.Errorf("%s, %s: counted %d times", x.what, form, n)
			}
			ev := receive(t, told)
			if ev.Err != err || ev.Name != x.m.Name() || ev.Kind != x.m.key.Kind.String() || ev.Attempts != 0 || time.Since(ev.Start) > time.Minute {
				t.Errorf("%s, %s: told %+v, want %v", x.what, form, ev, err)
			}
		}
	}
	mustUnlock(t, h)
	mustUnlock(t, mustLock(t, e.Mutex("last")))
	if ev := receive(t, told); ev.Name != "last" {
		t.Errorf("something was told twice: %+v", ev)
	}
}
