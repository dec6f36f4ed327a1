package kinds

import (
	"context"
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Code that takes a Lock works with each of them.
func TestLock_EveryKind_IsOne(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	e := v[0]
	if err := e.PermitSemaphore("p").SetPermits(testkit.Ctx(t), 2); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]engine.Lock{
		"m": e.Mutex("m"), "f": e.FairMutex("f"), "s": e.SpinMutex("s"), "t": e.FencedMutex("t"),
		"r": e.RWMutex("r").Reader(), "w": e.RWMutex("w").Writer(),
		"a and 1 more": e.Many("a", "b"), "x": v.Lock("x"), "p": e.PermitSemaphore("p").Permits(2),
	} {
		if l.Name() != name {
			t.Errorf("%v is called %q", l, l.Name())
		}
		held := func(how string, h *engine.Hold, err error) {
			if err != nil || h.Err() != nil || h.Name() != name {
				t.Errorf("%s of %s: %v, %v", how, name, h, err)
				return
			}
			testkit.MustUnlock(t, h)
		}
		h, err := l.Lock(testkit.Ctx(t))
		held("Lock", h, err)
		h, err = l.TryLock(testkit.Ctx(t))
		held("TryLock", h, err)
		h, err = l.LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))
		held("LockAsync", h, err)
		h, err = l.TryLockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))
		held("TryLockAsync", h, err)
		ran := 0
		run := func(_ context.Context, h *engine.Hold) error { ran++; return h.Err() }
		if err := l.Do(testkit.Ctx(t), run); err != nil {
			t.Errorf("Do of %s: %v", name, err)
		}
		if did, err := l.TryDo(testkit.Ctx(t), run); !did || err != nil || ran != 2 {
			t.Errorf("TryDo of %s: %v, %v", name, did, err)
		}
	}
	s.Servers[0].Do("DEL", "p", "redisson_lock_token:{t}")
	s.Clean(v)
}

// What is one key on the server is one synchronizer: while an engine uses a name for one, it does
// not use it for another. The server could not tell a Semaphore from a Latch, nor from a
// PermitSemaphore: all are a number.
func TestEngine_NameOfAnotherKind_IsRefused(t *testing.T) {
	t.Parallel()
	type use struct {
		family string                                            // those of one share a name
		begin  func(t *testing.T, e *engine.Engine) (end func()) // takes something
		ask    map[string]func(ctx context.Context, e *engine.Engine) error
	}
	lock := func(family string, of func(e *engine.Engine) engine.Mutex) use {
		return use{
			family,
			func(t *testing.T, e *engine.Engine) func() {
				h := testkit.MustLock(t, of(e))
				return func() { testkit.MustUnlock(t, h) }
			},
			map[string]func(ctx context.Context, e *engine.Engine) error{
				"TryLock": func(ctx context.Context, e *engine.Engine) error { return testkit.ErrOf(of(e).TryLock(ctx)) },
				"Lock":    func(ctx context.Context, e *engine.Engine) error { return testkit.ErrOf(of(e).Lock(ctx)) },
			},
		}
	}
	uses := map[string]use{
		"mutex":  lock("hash", func(e *engine.Engine) engine.Mutex { return e.Mutex("x") }),
		"spin":   lock("hash", func(e *engine.Engine) engine.Mutex { return e.SpinMutex("x") }),
		"fenced": lock("hash", func(e *engine.Engine) engine.Mutex { return e.FencedMutex("x") }),
		"fair":   lock("fair", func(e *engine.Engine) engine.Mutex { return e.FairMutex("x") }),
		"reader": lock("read-write", func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Reader() }),
		"writer": lock("read-write", func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Writer() }),
		"semaphore": {
			"semaphore",
			func(t *testing.T, e *engine.Engine) func() {
				testkit.MustSetPermits(t, e.Semaphore("x"), 3)
				p := testkit.MustAcquire(t, e.Semaphore("x"), 1)
				return func() {
					if err := p.Release(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
			},
			map[string]func(ctx context.Context, e *engine.Engine) error{
				"SetPermits": func(ctx context.Context, e *engine.Engine) error {
					_, err := e.Semaphore("x").TrySetPermits(ctx, 1)
					return err
				},
				"AddPermits": func(ctx context.Context, e *engine.Engine) error { return e.Semaphore("x").AddPermits(ctx, 1) },
				"Acquire": func(ctx context.Context, e *engine.Engine) error {
					_, err := e.Semaphore("x").Acquire(ctx, 1)
					return err
				},
				"Drain": func(ctx context.Context, e *engine.Engine) error { _, err := e.Semaphore("x").Drain(ctx); return err },
			},
		},
		"latch": {
			"latch",
			func(t *testing.T, e *engine.Engine) func() {
				l := e.Latch("x")
				if set, err := l.TrySetCount(testkit.Ctx(t), 1); !set || err != nil {
					t.Fatal(set, err)
				}
				f := l.AwaitAsync(testkit.Ctx(t))
				return func() {
					if err := errors.Join(l.CountDown(testkit.Ctx(t)), l.Await(testkit.Ctx(t))); err != nil {
						t.Error(err)
					}
					if _, err := f.Await(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
			},
			map[string]func(ctx context.Context, e *engine.Engine) error{
				"CountDown": func(ctx context.Context, e *engine.Engine) error { return e.Latch("x").CountDown(ctx) },
				"TrySetCount": func(ctx context.Context, e *engine.Engine) error {
					_, err := e.Latch("x").TrySetCount(ctx, 1)
					return err
				},
				"Await": func(ctx context.Context, e *engine.Engine) error { return e.Latch("x").Await(ctx) },
			},
		},
		"permits": {
			"permits",
			func(t *testing.T, e *engine.Engine) func() {
				if err := e.PermitSemaphore("x").SetPermits(testkit.Ctx(t), 3); err != nil {
					t.Fatal(err)
				}
				h := testkit.MustTake(t, e.PermitSemaphore("x"), 1)
				return func() { testkit.MustUnlock(t, h) }
			},
			map[string]func(ctx context.Context, e *engine.Engine) error{
				"SetPermits": func(ctx context.Context, e *engine.Engine) error { return e.PermitSemaphore("x").SetPermits(ctx, 1) },
				"AddPermits": func(ctx context.Context, e *engine.Engine) error { return e.PermitSemaphore("x").AddPermits(ctx, 1) },
				"Available": func(ctx context.Context, e *engine.Engine) error {
					_, err := e.PermitSemaphore("x").Available(ctx)
					return err
				},
				"Acquire": func(ctx context.Context, e *engine.Engine) error {
					_, err := e.PermitSemaphore("x").Acquire(ctx, 1)
					return err
				},
			},
		},
	}
	if len(uses) != kind.Kinds+2 { // and the Semaphore and the Latch
		t.Fatalf("%d kinds of %d", len(uses), kind.Kinds+2)
	}
	shown := map[string]string{
		"hash": "a Mutex", "fair": "a FairMutex", "read-write": "an RWMutex",
		"semaphore": "a Semaphore", "latch": "a Latch", "permits": "a PermitSemaphore",
	}
	for one, first := range uses {
		t.Run(one, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			e := testkit.Open(t, s.URL())
			end := first.begin(t, e)
			value, keys := s.Do("DUMP", "x"), s.Do("DBSIZE")
			for other, second := range uses {
				if second.family == first.family {
					continue
				}
				for what, ask := range second.ask {
					if err := ask(testkit.Ctx(t), e); !errors.Is(err, engine.ErrKindConflict) || !testkit.HasText(err, "uses the name for "+shown[first.family]) {
						t.Errorf("%s of a %s: %v", what, other, err)
					}
				}
			}
			if s.Do("DUMP", "x") != value || s.Do("DBSIZE") != keys {
				t.Error("something was changed")
			}
			end()
			// Then the name is free for others. What only lingers is in nobody's way.
			for _, second := range uses {
				if second.family != first.family {
					s.Do("FLUSHALL")
					second.begin(t, e)()
				}
			}
		})
	}
}

// A name that had somebody who waited keeps its subscription for a moment. It is free for any kind
// at once.
func TestEngine_NameThatOnlyLingers_IsFreeForEveryKind(t *testing.T) {
	t.Parallel()
	locks := map[string]func(e *engine.Engine) engine.Mutex{
		"mutex": func(e *engine.Engine) engine.Mutex { return e.Mutex("x") },
		"fair":  func(e *engine.Engine) engine.Mutex { return e.FairMutex("x") },
		"read":  func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Reader() },
		"write": func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Writer() },
	}
	permits := func(ctx context.Context, e *engine.Engine) error {
		s := e.PermitSemaphore("x")
		if err := s.SetPermits(ctx, 1); err != nil {
			return err
		}
		h, err := s.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		return h.Unlock(ctx)
	}
	for one, first := range locks {
		second := map[string]func(ctx context.Context, e *engine.Engine) error{"permits": permits}
		for other, lock := range locks {
			if (one == "read" || one == "write") && (other == "read" || other == "write") {
				continue
			}
			second[other] = func(ctx context.Context, e *engine.Engine) error {
				h, err := lock(e).Lock(ctx)
				if err != nil {
					return err
				}
				return h.Unlock(ctx)
			}
		}
		for other, use := range second {
			t.Run(one+" "+other, func(t *testing.T) {
				t.Parallel()
				s := testkit.Server(t)
				e, far := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
				h := testkit.MustLock(t, first(far))
				if one == "read" { // a reader waits for a writer
					testkit.MustUnlock(t, h)
					h = testkit.MustLock(t, locks["write"](far))
				}
				ctx, cancel := context.WithCancel(testkit.Ctx(t))
				defer cancel()
				waits := first(e).LockAsync(ctx)
				testkit.Eventually(t, "it was refused, and listens", func() bool { return e.Stats().Channels == 1 })
				cancel()
				if _, err := waits.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
					t.Fatal(err)
				}
				testkit.MustUnlock(t, h)
				// One who gives up leaves the queue of a fair lock by a command: until its answer the name is in use.
				testkit.Eventually(t, "nothing is out", func() bool { return e.Stats().InFlight == 0 })
				s.Do("FLUSHALL")
				if err := use(testkit.Ctx(t), e); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestTryLock_UnderAHoldOfAnotherKind_SaysWhichKindThatIs(t *testing.T) {
	t.Parallel()
	e := testkit.Open(t, testkit.Server(t).URL())
	for want, locks := range map[string][2]engine.Mutex{
		"a Mutex":     {e.SpinMutex("s"), e.FairMutex("s")},
		"a FairMutex": {e.FairMutex("f"), e.RWMutex("f").Reader()},
		"an RWMutex":  {e.RWMutex("rw").Reader(), e.Mutex("rw")},
	} {
		h := testkit.MustLock(t, locks[0])
		if err := testkit.ErrOf(locks[1].TryLock(h.Context(testkit.Ctx(t)))); !errors.Is(err, engine.ErrKindConflict) || !testkit.HasText(err, "the name for "+want) {
			t.Errorf("%s: %v", want, err)
		}
		testkit.MustUnlock(t, h)
	}
}

// A Mutex and a SpinMutex of one name share a key on the server, so they are one lock in the
// engine, too.
func TestSpinMutex_UnderAMutexOfItsName_Reenters(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	kinds := map[string]engine.Mutex{"mutex": e.Mutex("x"), "spin": e.SpinMutex("x")}
	for outer, m := range kinds {
		for inner, other := range kinds {
			h := testkit.MustLock(t, m)
			again := testkit.MustReenter(t, other, h)
			if got := testkit.Count(t, again, testkit.Fields(t, s, "x")); got != "2" || again.Owner() != h.Owner() {
				t.Errorf("%s in %s is counted %q, owners %s and %s", inner, outer, got, again.Owner(), h.Owner())
			}
			testkit.MustUnlock(t, again)
			testkit.MustUnlock(t, h)
		}
	}
	many, err := engine.Multi(e.SpinMutex("x"), e.SpinMutex("y")).Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	again, err := e.Mutex("y").TryLock(many.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatalf("a Mutex in a MultiLock of SpinMutexes: %v", err)
	}
	testkit.MustUnlock(t, again)
	if err := many.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
}
