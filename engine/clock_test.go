package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/pawl-lock/pawl/engine/internal/world"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/wheel"
)

// moodyClock is the system's clock on a machine that sleeps and whose wall clock is
// set by hand.
type moodyClock struct {
	clock.Clock
	asleep  atomic.Int64
	seen    atomic.Int64 // what Now has seen of asleep: Stamp lags by the rest
	stepped atomic.Int64 // of the wall clock
}

func (c *moodyClock) Now() clock.Instant {
	slept := c.asleep.Load()
	c.seen.Store(slept)
	return c.Clock.Now().Add(time.Duration(slept))
}

func (c *moodyClock) Stamp() clock.Instant {
	return c.Clock.Stamp().Add(time.Duration(c.seen.Load()))
}

func (c *moodyClock) Wall() time.Time {
	return c.Clock.Wall().Add(time.Duration(c.asleep.Load() + c.stepped.Load()))
}

// openOn connects an engine that has this clock.
func openOn(t testing.TB, s *redistest.Server, clk clock.Clock, change ...func(*Config)) *Engine {
	t.Helper()
	cfg, err := ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	e := start(cfg.withDefaults(), world.Real(clk))
	t.Cleanup(func() { _ = e.Close() })
	if err := connected(e).WaitReady(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	return e
}

// The server's wall clock may have been set with ours, and leases count on it there:
// every hold is renewed at once, long before it is due, and none is lost.
func TestStepOfTheWallClockRenewsEveryHoldAtOnce(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"forward": 3 * time.Hour, "backward": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				s := server(t)
				clk := &moodyClock{Clock: clock.System()}
				e := openOn(t, s, clk, func(c *Config) { c.Lease = 10 * time.Minute })
				const n = 200
				var holds []*Hold
				for i := range n {
					holds = append(holds, mustLock(t, e.Mutex(fmt.Sprint("x", i))))
				}
				if r := e.Stats().Renewed; r != 0 {
					t.Fatalf("%d renewed before the step", r)
				}
				for round := range 2 {
					clk.stepped.Add(int64(step))
					eventually(t, "all are renewed", func() bool { return e.Stats().Renewed >= uint64(n*(round+1)) })
					for _, h := range holds {
						if err, left := h.Err(), h.ValidUntil().Sub(clk.Wall()); err != nil || left < 9*time.Minute || left > 10*time.Minute {
							t.Fatalf("after the step: %v, valid for another %v", err, left)
						}
					}
					// A few that were renewed joined a cohort that was still to be renewed.
					if st := e.Stats(); st.Renewed > uint64(n*(round+1)*5/4) || st.WheelRebuilds != uint64(round+1) {
						t.Errorf("round %d: %d renewed, %d rebuilds", round, st.Renewed, st.WheelRebuilds)
					}
				}
				for _, h := range holds {
					mustUnlock(t, h)
				}
				clean(t, s, e)
			})
		})
	}
}

// After a sleep that outlasts the lease, whatever is asked first of a hold tells the
// truth, although no timer has run yet.
func TestSleepOfTheMachineEndsEveryHoldBeforeItsNextUse(t *testing.T) {
	t.Parallel()
	uses := map[string]func(t *testing.T, e *Engine, h *Hold, outer context.Context){
		"Err": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if err := h.Err(); !errors.Is(err, ErrLost) {
				t.Errorf("Err: %v", err)
			}
		},
		"ValidUntil": func(t *testing.T, e *Engine, h *Hold, _ context.Context) {
			if left := h.ValidUntil().Sub(e.clock.Wall()); left > 0 {
				t.Errorf("valid for another %v", left)
			}
		},
		"Unlock": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
		},
		"UnlockAsync": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if _, err := h.UnlockAsync().Await(ctxT(t)); !errors.Is(err, ErrLost) {
				t.Errorf("UnlockAsync: %v", err)
			}
		},
		"Extend": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if err := h.Extend(ctxT(t), time.Minute); !errors.Is(err, ErrLost) && !errors.Is(err, ErrInvalid) {
				t.Errorf("Extend: %v", err)
			}
		},
		"Context": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if ctx := h.Context(context.Background()); !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("Context: its cause is %v", context.Cause(ctx))
			}
		},
		"re-entry": func(t *testing.T, e *Engine, h *Hold, outer context.Context) {
			child, err := e.Mutex(h.Name()).TryLock(outer)
			if err == nil && child.Owner() == h.Owner() {
				t.Error("re-entered a hold that had ended")
			}
			if err == nil {
				mustUnlock(t, child)
			}
		},
	}
	for what, use := range uses {
		for kind, opts := range map[string][]Option{"watchdog": nil, "fixed lease": {Lease(30 * time.Second)}} {
			t.Run(what+", "+kind, func(t *testing.T) {
				t.Parallel()
				s := server(t)
				clk := &moodyClock{Clock: clock.System()}
				e := openOn(t, s, clk)
				h := mustLock(t, e.Mutex("x"), opts...)
				outer := h.Context(context.Background())
				next := e.Mutex("x").LockAsync(ctxT(t))
				clk.asleep.Add(int64(40 * time.Second))
				use(t, e, h, outer)
				select {
				case <-h.Done():
				case <-ctxT(t).Done():
					t.Fatal("Done does not follow")
				}
				<-outer.Done()
				if err := h.Err(); !errors.Is(err, ErrLost) {
					t.Errorf("it ended with %v", err)
				}
				// The server has not slept: the field is still there, and is released.
				got, err := next.Await(ctxT(t))
				if err != nil {
					t.Fatal(err)
				}
				mustUnlock(t, got)
				eventually(t, "nothing is left on the server", func() bool { return s.Do("DBSIZE") == int64(0) })
			})
		}
	}
}

// deadLibrary is the library below the timing wheel when it has dead-locked: what it
// is given never fires, and if it hangs, nothing returns.
type deadLibrary struct{ hang <-chan struct{} }

func (l deadLibrary) Start()                      {}
func (l deadLibrary) After(time.Duration, func()) { <-l.hang }
func (l deadLibrary) Stop()                       { <-l.hang }

// onDead returns the configuration of a wheel whose every library is dead. The
// wheel's own tests have a seam for that, which is not exported.
func onDead(hang <-chan struct{}) wheel.Config {
	var cfg wheel.Config
	field := reflect.ValueOf(&cfg).Elem().FieldByName("newLibrary")
	made := reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value {
		lib := reflect.New(field.Type().Out(0)).Elem()
		lib.Set(reflect.ValueOf(deadLibrary{hang}))
		return []reflect.Value{lib}
	})
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(made)
	return cfg
}

// The timing wheel's library is dead from the start and stays so, however often it
// is replaced: leases are still renewed, and lost ones end.
func TestLeasesSurviveADeadTimingWheel(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"silent": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				hang := make(chan struct{})
				release := sync.OnceFunc(func() { close(hang) })
				if !hangs {
					release()
				}
				t.Cleanup(release)
				s := server(t)
				e := openOn(t, s, clock.System(), func(c *Config) {
					c.Lease = 3 * time.Second
					c.wheel = onDead(hang)
				})
				const n = 100
				var holds []*Hold
				for i := range n {
					holds = append(holds, mustLock(t, e.Mutex(fmt.Sprint("x", i))))
				}
				fixed := mustLock(t, e.Mutex("fixed"), Lease(2*time.Second))
				eventually(t, "each is renewed four times", func() bool { return e.Stats().Renewed >= 4*n || e.Stats().Held < n })
				for _, h := range holds {
					if err := h.Err(); err != nil {
						t.Fatalf("lost: %v", err)
					}
				}
				eventually(t, "the fixed lease ends by a timer", func() bool {
					select {
					case <-fixed.Done():
						return true
					default:
						return false
					}
				})
				if e.Stats().WheelRebuilds == 0 {
					t.Error("the wheel was not rebuilt: was its library dead?")
				}
				for _, h := range holds {
					mustUnlock(t, h)
				}
				eventually(t, "nothing is left on the server", func() bool { return s.Do("DBSIZE") == int64(0) })
				release()
			})
		})
	}
}

// The margin of a short lease is short. Its end is told within it though the timing wheel's
// library is dead: the server has not given the lock to another yet.
func TestTheEndOfAShortLeaseIsToldInTimeOnADeadTimingWheel(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		hang := make(chan struct{})
		close(hang)
		e := openOn(t, server(t), clock.System(), func(c *Config) { c.wheel = onDead(hang) })
		const lease = 600 * time.Millisecond
		var all sync.WaitGroup
		for i := range 25 { // one after the other, so the watcher's looks favour none
			h := mustLock(t, e.Mutex(fmt.Sprint("x", i)), Lease(lease))
			until := oneOf(h).Until()
			all.Go(func() {
				<-h.Done()
				if late := e.clock.Now().Sub(until); late > lease/10 {
					t.Errorf("told %v after its end, and %v after the server's", late, late-lease/10)
				}
			})
			eventually(t, "a little later", func() bool { return e.clock.Now() > until.Add(20*time.Millisecond-lease*9/10) })
		}
		all.Wait()
	})
}
