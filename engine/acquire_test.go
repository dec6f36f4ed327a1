package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A subscription lingers for a second after the last waiter; Close does not.
func TestClose_LingeringSubscription_IsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := server(t)
	// An engine that has had a lock for a second listens for questions, too: that channel lingers as well.
	e, other := open(t, s.URL()), open(t, s.URL())
	// It does mostly: not if an alarm that was set for something else rings at that moment.
	eventually(t, "a channel lingers", func() bool {
		mustUnlock(t, mustLockBehind(t, other.Mutex("x"), e.Mutex("x")))
		return e.Stats().Channels == 1
	})
	start := cputime.Now()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if d := start.Elapsed(); d > serial.LingerFor*3/4 {
		t.Errorf("Close took %v", d)
	}
	clean(t, s)
}

// An owner whose acquire had no answer is released three times, and then forgotten.
func TestLock_AcquireInDoubt_IsReleasedThreeTimes(t *testing.T) {
	t.Parallel()
	s, p, e, clk := behindOn(t, patient)
	released := p.Watch(releaseOf("x"))
	p.Delay(faultproxy.All, 0, time.Hour)
	asked := p.Watch(acquireOf("x"))
	f := e.Mutex("x").TryLockAsync(ctxT(t))
	asked.Wait(1)
	f.Abandon() // or it would try again
	<-f.Done()
	p.Cut(faultproxy.All) // first: without the delay the answer would still come through
	p.Delay(faultproxy.All, 0, 0)
	for i, pause := range []time.Duration{0, time.Second, e.cfg.Lease} {
		clk.pass(pause)
		// The answer to the one before may be counted before the engine has set its timer:
		// then the pause begins later.
		eventually(t, "it is released", func() bool { clk.pass(pause/10 + time.Millisecond); return released.Done() > i })
		eventually(t, "it is answered", func() bool { return e.Stats().InFlight == 0 })
	}
	eventually(t, "it is forgotten", func() bool { return lookInto(e).Names == 0 })
	clk.pass(time.Hour)
	if n := released.Done(); n != 3 {
		t.Errorf("released %d times", n)
	}
	clean(t, s)
}

func TestFuture_SharedContextCancelled_EndsAll(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	other := mustLock(t, open(t, s.URL()).Mutex("taken"))
	why := errors.New("shut down")
	ctx, cancel := context.WithCancelCause(context.Background())
	var leakCheck atomic.Int32
	const n = 2000
	futures := make([]*Future[*Hold], n)
	for i := range futures {
		// The same Done channel under many contexts, as middlewares make them.
		futures[i] = e.Mutex("taken").LockAsync(context.WithValue(ctx, holdsKey{}, nil))
		futures[i].OnComplete(func(*Hold, error) { leakCheck.Add(1) })
	}
	if w := e.Stats().Waiting; w != n {
		t.Errorf("%d are waiting, want %d", w, n)
	}
	cancel(why)
	for _, f := range futures {
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, why) {
			t.Fatalf("error is %v, want ErrNotAcquired and the cause", err)
		}
	}
	eventually(t, "every callback ran", func() bool { return leakCheck.Load() == n })
	if w := e.Stats().Waiting; w != 0 {
		t.Errorf("%d are still waiting", w)
	}
	mustUnlock(t, other)
	clean(t, s)
}

// resourceOf returns the state of a name, nil if it has none.
func resourceOf(e *Engine, name string) *lock.Entry {
	sh := e.table.Shard(e.table.Client.Route(name))
	sh.Lock()
	defer sh.Unlock()
	return sh.Locks.Find(name)
}

// wantNoneListedAndFree fails the test if recovery points to a resource that the next
// name may be given.
func wantNoneListedAndFree(t *testing.T, e *Engine) (listed int) {
	t.Helper()
	for _, l := range e.table.Recovery.View().Lanes {
		for _, r := range slices.Concat(l.Urgent, l.Tries) {
			listed++
			_, _, route := r.Status()
			sh := e.table.Shard(route)
			sh.Lock()
			if slices.ContainsFunc(sh.Locks.Free(), func(free *lock.Entry) bool { return &free.Cancelled == r.Unwanted() }) {
				t.Error("recovery lists a resource that is free for another name")
			}
			sh.Unlock()
		}
	}
	return listed
}

// A name is held back by one thing at a time:
//
//	head                TryLock            server
//	asleep              sent
//	channel lost:
//	stalled, listed by
//	recovery
//	                    <----------------  BUSY
//	cancelled                              the lane dies
//	... if BUSY had paused the name, the end of the pause would let it go, and recovery
//	would still have it when it serves another
func TestLock_RefusedWhileRecoveryHasItsName_IsNotPaused(t *testing.T) {
	t.Parallel()
	s, p, e, clk := behindOn(t, patient)
	other := open(t, s.URL())
	h := mustLock(t, other.Mutex("x"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	waiter := e.Mutex("x").LockAsync(ctx)
	eventually(t, "the head is asleep, its subscription confirmed", func() bool {
		return p.Stats().Forwarded["EVALSHA"] == 2 && e.Stats().InFlight == 0
	})
	r := resourceOf(e, "x")
	held := func(why lock.Blocked) func() bool {
		return func() bool {
			sh := driver.ShardOf(r)
			sh.Lock()
			defer sh.Unlock()
			return r.Blocked() == why
		}
	}
	p.ReplaceReply(acquireOf("x"), []byte("-BUSY Redis is busy\r\n"), 1)
	p.Pause(faultproxy.Carried("EVALSHA"))
	tries, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	try := e.Mutex("x").TryLockAsync(tries)
	eventually(t, "the TryLock is out", func() bool { return e.Stats().InFlight == 1 })
	p.Cut(faultproxy.Carried("SUBSCRIBE"))
	eventually(t, "the name is stalled", held(lock.Disconnected))
	p.Resume()
	eventually(t, "the TryLock is refused, for now", func() bool { return e.Stats().InFlight == 0 })
	giveUp()
	if _, err := try.Await(ctxT(t)); !errors.Is(err, context.Canceled) {
		t.Fatalf("TryLock: %v", err)
	}
	p.Down()
	eventually(t, "the lane is down", func() bool { return !connected(e).Up(0, 0) })
	cancel()
	if _, err := waiter.Await(ctxT(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("the waiter: %v", err)
	}
	clk.pass(time.Minute) // whatever was armed has fired
	if n := wantNoneListedAndFree(t, e); n != 1 {
		t.Errorf("recovery lists %d names, want this one", n)
	}
	p.Up()
	eventually(t, "the name is gone", func() bool { return lookInto(e).Names == 0 && wantNoneListedAndFree(t, e) == 0 })
	mustUnlock(t, h)
	mustUnlock(t, mustLock(t, e.Mutex("x")))
}

// brittleContext is a context of the user's that may be asked for the holds in it once.
type brittleContext struct {
	context.Context
	asked *int
}

func (c brittleContext) Value(key any) any {
	if _, ok := key.(holdsKey); ok {
		if *c.asked++; *c.asked > 1 {
			panic("a broken context")
		}
	}
	return c.Context.Value(key)
}

// The lock is held when Do makes the context of the function.
func TestDo_ContextPanics_ReleasesTheLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	func() {
		defer func() {
			if v := recover(); v != "a broken context" {
				t.Errorf("recovered %v", v)
			}
		}()
		ctx := brittleContext{context.Background(), new(int)}
		_ = e.Mutex("x").Do(ctx, func(context.Context, *Hold) error { panic("it runs") })
	}()
	clean(t, s, e)
}

// count is the owner's field on the server, "" if it is not there.
func count(t testing.TB, h *Hold, all map[string]string) string {
	t.Helper()
	if len(all) > 1 {
		t.Errorf("%d owners: %v", len(all), all)
	}
	return all[h.Owner()]
}

// As without a hold: it waits for its turn, and is not told that somebody has the lock.
func TestTryLock_BehindTheReleaseOfAReentry_WaitsForItsTurn(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"that is answered": false, "that has no answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := behind(t)
			m := e.Mutex("x")
			h := mustLock(t, m)
			child := mustReenter(t, m, h)
			p.Pause(faultproxy.All)
			released := child.UnlockAsync()
			try := m.TryLockAsync(h.Context(ctxT(t)))
			if _, err := try.Result(); err != ErrPending {
				t.Fatalf("TryLock: %v", err)
			}
			if hangs {
				try.source.(*acquisition).giveUpNow()
				if _, err := try.Await(ctxT(t)); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) {
					t.Errorf("TryLock: %v", err)
				}
			}
			p.Resume()
			if _, err := released.Await(ctxT(t)); err != nil {
				t.Error(err)
			}
			if !hangs {
				again, err := try.Await(ctxT(t))
				if err != nil {
					t.Fatalf("TryLock: %v", err)
				}
				if got := count(t, again, fields(t, s, "x")); got != "2" {
					t.Errorf("the server counts %q", got)
				}
				mustUnlock(t, again)
			}
			mustUnlock(t, h)
			clean(t, s)
		})
	}
}

// The first may get no answer, and then nobody has what the second was refused for.
func TestTryLock_UnderAHoldBehindAnother_GoesByItsOwnTry(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"that is granted": false, "that has no answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := behind(t)
			m := e.Mutex("x")
			h := mustLock(t, m)
			ctx := h.Context(ctxT(t))
			p.Pause(faultproxy.All)
			first, second := m.TryLockAsync(ctx), m.TryLockAsync(ctx)
			if _, err := second.Result(); err != ErrPending {
				t.Fatalf("the second: %v", err)
			}
			if hangs {
				for _, try := range []*Future[*Hold]{first, second} {
					try.source.(*acquisition).giveUpNow()
					if _, err := try.Await(ctxT(t)); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) {
						t.Errorf("TryLock: %v", err)
					}
				}
			}
			p.Resume()
			if !hangs {
				child, err := first.Await(ctxT(t))
				if err != nil {
					t.Fatalf("the first: %v", err)
				}
				if _, err := second.Await(ctxT(t)); !errors.Is(err, ErrHeld) {
					t.Errorf("the second: %v", err)
				}
				mustUnlock(t, child)
			}
			mustUnlock(t, h)
			clean(t, s)
		})
	}
}

// While somebody waits in this process its channel is heard: a release that is not
// ours makes the holder look at once, long before the next renewal.
func TestForceUnlock_AfterReleasesOfOurOwn_IsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	m := e.Mutex("x")
	for round := range 3 { // with releases of our own before it, whose messages come late
		first := mustLock(t, m)
		waiting := m.LockAsync(ctxT(t))
		if round == 0 {
			// A local waiter behind a local hold has not asked the server yet.
			blocker := mustLockBehind(t, other.Mutex("y"), e.Mutex("y"))
			mustUnlock(t, blocker)
		}
		mustUnlock(t, first)
		h, err := waiting.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
	}
	blocker := mustLock(t, other.Mutex("x"))
	got, next := m.LockAsync(ctxT(t)), m.LockAsync(ctxT(t))
	eventually(t, "we listen", func() bool { return e.Stats().Channels >= 1 })
	mustUnlock(t, blocker)
	h, err := got.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Do("PING") // a round trip: the message of the blocker's release has been sent
	<-time.After(20 * time.Millisecond)
	start := cputime.Now()
	if was, err := other.Mutex("x").ForceUnlock(ctxT(t), IfHolder(h.Owner())); !was || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	receive(t, h.Done())
	wantLost(t, "Err", h.Err(), RemovedOnServer)
	if d := start.Elapsed(); d > 3*time.Second {
		t.Errorf("noticed after %v", d)
	}
	h2, err := next.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h2)
	clean(t, s)
}

// mustLockBehind lets b wait for a's hold and returns b's.
func mustLockBehind(t testing.TB, a, b Mutex) *Hold {
	t.Helper()
	h := mustLock(t, a)
	f := b.LockAsync(ctxT(t))
	eventually(t, "it listens", func() bool { return b.home.Stats().Channels >= 1 })
	mustUnlock(t, h)
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Nothing is held and nobody waits any more: there is nothing to wait for.
func TestClose_StalledName_HoldsItUpNot(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*Engine) error{
		"Close":    (*Engine).Close,
		"Shutdown": func(e *Engine) error { return e.Shutdown(within(t, 3*time.Second)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				if stalledNameIsGivenUp(t, end) {
					return
				}
			}
			t.Error("each time a try was out when the server died")
		})
	}
}

// stalledNameIsGivenUp ends an engine whose only name is stalled. It reports false if a
// try was out when the server died: then its outcome is waited for, and rightly so.
func stalledNameIsGivenUp(t *testing.T, end func(*Engine) error) bool {
	t.Helper()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL(), func(c *Config) { c.CloseTimeout = 100 * time.Millisecond })
	mustLock(t, other.Mutex("x"))
	f := e.Mutex("x").LockAsync(ctxT(t))
	eventually(t, "it listens, and was refused once more after that", func() bool { return e.sleepsOnMessagesForTest("x") })
	s.Kill()
	waits := false
	eventually(t, "its name is stalled, and recovery has given it up", func() bool {
		for _, l := range e.table.Recovery.View().Lanes {
			if waits = len(l.Urgent) > 0; waits || len(l.Tries) == 1 && !l.Kicked {
				return true
			}
		}
		return false
	})
	if waits {
		_ = e.Close()
		return false
	}
	if err := end(e); err != nil {
		t.Error(err)
	}
	if _, err := f.Await(context.Background()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	return true
}

// Acquisitions that fail before anything is queued or sent have a verdict like any
// other: it is counted and told once.
func TestLock_FailsAtOnce_IsCountedAndReportedOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	type ended struct {
		Acquisition
		AcquireEnd
	}
	leakCheck := make(chan ended, 64)
	e := open(t, s.URL(), func(c *Config) {
		c.Observer = ObserverFuncs{OnAcquireEnd: func(_ context.Context, a Acquisition, end AcquireEnd) { leakCheck <- ended{a, end} }}
	})
	h := mustLock(t, e.Mutex("held"))
	if ev := receive(t, leakCheck); ev.Name != "held" || ev.Err != nil {
		t.Fatalf("the grant: %+v", ev)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, x := range []struct {
		what string
		ctx  context.Context
		m    Mutex
		opts []Option
		want error
	}{
		{"a context that has ended", gone, e.Mutex("x"), nil, context.Canceled},
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
			ev := receive(t, leakCheck)
			if ev.Err != err || ev.Name != x.m.Name() || ev.Kind != x.m.key.Kind.String() || ev.Attempts != 0 || time.Since(ev.Time) > time.Minute {
				t.Errorf("%s, %s: told %+v, want %v", x.what, form, ev, err)
			}
		}
	}
	mustUnlock(t, h)
	mustUnlock(t, mustLock(t, e.Mutex("last")))
	if ev := receive(t, leakCheck); ev.Name != "last" {
		t.Errorf("something was told twice: %+v", ev)
	}
}

// nosyContext is a context of the user's that looks where its methods are called from.
type nosyContext struct {
	context.Context
	t     *testing.T
	asked *atomic.Int32
}

func (c nosyContext) Done() <-chan struct{} { c.look("Done"); return c.Context.Done() }

func (c nosyContext) Err() error { c.look("Err"); return c.Context.Err() }

func (c nosyContext) Value(key any) any { c.look("Value"); return c.Context.Value(key) }

func (c nosyContext) look(method string) {
	c.asked.Add(1)
	if s := stack(); onLoop(s) {
		c.t.Errorf("%s of a user's context is called on an event loop or a timer:\n%s", method, s)
	}
}

// nosyAfterFunc has package context use a method of its own.
type nosyAfterFunc struct{ nosyContext }

func (c nosyAfterFunc) AfterFunc(f func()) (stop func() bool) {
	c.look("AfterFunc")
	inner := context.AfterFunc(c.Context, f)
	return func() bool { c.look("stop"); return inner() }
}

// The verdict of a future ends its watch, and arrives on an event loop.
func TestLock_ContextOfTheUser_IsNotCalledOnAnEventLoop(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(nosyContext) context.Context{
		"a context":                   func(c nosyContext) context.Context { return c },
		"a context with AfterFunc":    func(c nosyContext) context.Context { return nosyAfterFunc{c} },
		"made from a context":         func(c nosyContext) context.Context { return context.WithValue(c, holdsKey{}, nil) },
		"a context that knows nobody": func(c nosyContext) context.Context { return strangeContext{c, make(chan struct{})} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, server(t).URL())
			inner, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			nosy := nosyContext{inner, t, new(atomic.Int32)}
			ctx := of(nosy)
			for range 2 {
				h, err := e.Mutex("x").LockAsync(ctx).Await(ctxT(t))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := e.Mutex("x").TryLockAsync(ctx).Await(ctxT(t)); err == nil {
					t.Error("taken twice")
				}
				mustUnlock(t, h)
			}
			if nosy.asked.Load() == 0 {
				t.Error("the context was not asked at all")
			}
			if n := e.watches.Len(); n > 0 {
				t.Errorf("%d contexts are watched for nobody", n)
			}
		})
	}
}

// strangeContext has a Done of its own.
type strangeContext struct {
	nosyContext
	done chan struct{}
}

func (c strangeContext) Done() <-chan struct{} { c.look("Done"); return c.done }

// muteContext is a context of the user's that panics when package context asks for its
// inside.
type muteContext struct{ context.Context }

func (c muteContext) Value(key any) any {
	if _, ok := key.(holdsKey); !ok {
		panic("a broken context")
	}
	return c.Context.Value(key)
}

// Futures whose contexts share a Done share a watch. If it cannot be set up for one of
// them, the others are cancelled anyway.
func TestLockAsync_ContextThatPanics_OthersKeepTheirCancel(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	mustLock(t, e.Mutex("x"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	func() {
		defer func() {
			if v := recover(); v != "a broken context" {
				t.Errorf("recovered %v", v)
			}
		}()
		e.Mutex("x").LockAsync(muteContext{ctx})
	}()
	f := e.Mutex("x").LockAsync(ctx)
	cancel()
	_, err := f.Await(ctxT(t))
	if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := e.Stats().Waiting; n != 0 {
		t.Errorf("%d wait", n)
	}
}
