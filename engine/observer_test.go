package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// noContext is a nil context, which Hold.Context takes.
var noContext context.Context

// ledger is an Observer that writes down what it is told. Its contexts carry the acquisition's number.
type ledger struct {
	mu     sync.Mutex
	starts int
	events []event
}

// event is a call of AcquireEnd, HoldEnd or ReleaseEnd.
type event struct {
	engine.Acquisition
	number  int // of its AcquireStart
	acquire *engine.AcquireEnd
	hold    *engine.HoldEnd
	release *engine.ReleaseEnd
}

func (e event) String() string {
	switch {
	case e.acquire != nil:
		return fmt.Sprintf("%s %s: %v", e.Kind, e.Name, e.acquire.Outcome)
	case e.release != nil:
		return fmt.Sprintf("%s %s released: %v", e.Kind, e.Name, e.release.Err)
	}
	return fmt.Sprintf("%s %s ended %s", e.Kind, e.Name, e.hold.Reason.Code())
}

type numberKey struct{}

func numberIn(ctx context.Context) int {
	n, _ := ctx.Value(numberKey{}).(int)
	return n
}

func (l *ledger) AcquireStart(ctx context.Context, _ engine.Acquisition) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts++
	return context.WithValue(ctx, numberKey{}, l.starts)
}

func (l *ledger) AcquireEnd(ctx context.Context, a engine.Acquisition, end engine.AcquireEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{a, numberIn(ctx), &end, nil, nil})
}

func (l *ledger) HoldEnd(ctx context.Context, a engine.Acquisition, end engine.HoldEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{a, numberIn(ctx), nil, &end, nil})
}

func (l *ledger) ReleaseEnd(ctx context.Context, a engine.Acquisition, end engine.ReleaseEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{a, numberIn(ctx), nil, nil, &end})
}

func (*ledger) RenewEnd(engine.RenewEnd)     {}
func (*ledger) ConnChange(engine.ConnChange) {}

func (l *ledger) all() (starts int, events []event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starts, slices.Clone(l.events)
}

// of are the events of wholes, or of parts.
func (l *ledger) of(parts bool) (events []event) {
	_, all := l.all()
	for _, e := range all {
		if (e.PartOf != "") == parts {
			events = append(events, e)
		}
	}
	return events
}

// balanced waits until each start has one AcquireEnd, and each grant one HoldEnd after it, with the
// context of its start.
func (l *ledger) balanced(t testing.TB) {
	t.Helper()
	var why string
	defer func() {
		if why != "" {
			t.Log(why)
		}
	}()
	testkit.Eventually(t, "each start has an end", func() bool {
		why = l.imbalance()
		return why == ""
	})
}

func (l *ledger) imbalance() string {
	starts, events := l.all()
	granted, ended, over, unlocked := make(map[int]bool), make(map[int]bool), make(map[int]bool), make(map[int]bool)
	for _, e := range events {
		switch {
		case e.number == 0:
			return fmt.Sprintf("%v has not the context of its start", e)
		case e.acquire != nil && ended[e.number], e.hold != nil && (over[e.number] || !granted[e.number]),
			e.release != nil && !unlocked[e.number]:
			return fmt.Sprintf("%v comes twice, or too early", e)
		case e.acquire != nil:
			ended[e.number], granted[e.number] = true, e.acquire.Outcome == engine.Granted
		case e.hold != nil:
			over[e.number], unlocked[e.number] = true, e.hold.Reason == 0 && e.PartOf == ""
		default:
			unlocked[e.number] = false
		}
	}
	for n := range granted {
		if granted[n] && !over[n] {
			return fmt.Sprintf("grant %d has not ended", n)
		}
	}
	if len(ended) != starts {
		return fmt.Sprintf("%d starts, %d ends", starts, len(ended))
	}
	return ""
}

func observed(t testing.TB, url string, change ...func(*engine.Config)) (*engine.Engine, *ledger) {
	t.Helper()
	l := new(ledger)
	return testkit.Open(t, url, append(change, func(c *engine.Config) { c.Observer = l })...), l
}

func TestObserver_Events_SayWhatHappened(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or the short lease is over before its grant
		e, l := observed(t, testkit.Server(t).URL(), func(c *engine.Config) {
			c.NameMapper = func(name string) string { return "app:" + name }
		})
		h := testkit.MustLock(t, e.FencedMutex("x"))
		if _, err := e.Mutex("x").TryLock(testkit.Ctx(t)); err == nil {
			t.Fatal("TryLock got it")
		}
		child := testkit.MustReenter(t, e.FencedMutex("x"), h)
		owner := h.Owner()
		testkit.MustUnlock(t, child)
		testkit.MustUnlock(t, h)
		testkit.Receive(t, testkit.MustLock(t, e.Mutex("y"), engine.Lease(100*time.Millisecond)).Done())
		testkit.Eventually(t, "its end is reported", func() bool { return len(l.of(false)) == 9 }) // by another goroutine
		if err := e.PermitSemaphore("p").SetPermits(testkit.Ctx(t), 3); err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, testkit.MustTake(t, e.PermitSemaphore("p"), 3))
		l.balanced(t)

		events := l.of(false)
		var texts []string
		for _, ev := range events {
			texts = append(texts, ev.String())
		}
		want := []string{
			"fenced x: granted", "mutex x: refused", "fenced x: granted",
			"fenced x ended ", "fenced x released: <nil>", "fenced x ended ", "fenced x released: <nil>",
			"mutex y: granted", "mutex y ended lease_ended", "permit p: granted", "permit p ended ", "permit p released: <nil>",
		}
		if !slices.Equal(texts, want) {
			t.Fatalf("got\n%q, want\n%q", texts, want)
		}
		first, refused, again, childEnd, end, permit := events[0].acquire, events[1].acquire, events[2].acquire, events[3].hold, events[5].hold, events[9]
		if first.Owner() != owner || first.Token != 1 || first.Attempts != 1 || first.Err != nil || first.Reentry || first.Wait <= 0 || time.Since(first.Time) > time.Minute {
			t.Errorf("the grant: %+v", first)
		}
		if !errors.Is(refused.Err, engine.ErrHeld) || refused.Owner() != "" || !events[1].Try {
			t.Errorf("the refusal: %+v", refused)
		}
		if !again.Reentry || again.Token != 1 || !childEnd.Reentry || childEnd.Held <= 0 {
			t.Errorf("the re-entry: %+v, %+v", again, childEnd)
		}
		if end.Owner() != owner || end.Token != 1 || end.Wait != first.Wait || end.Held < childEnd.Held || end.Reentry {
			t.Errorf("the end: %+v", end)
		}
		if permit.Permits != 3 || permit.acquire.Owner() != "" {
			t.Errorf("the permits: %+v", permit)
		}
	})
}

// What is called on the goroutine of the caller needs no lock: the race detector would find that it is
// another.
func TestObserver_LockAndUnlock_CallOnTheirGoroutine(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	var calls []string
	note := engine.ObserverFuncs{
		OnAcquireStart: func(ctx context.Context, a engine.Acquisition) context.Context {
			if a.PartOf == "" {
				calls = append(calls, "start")
			}
			return ctx
		},
		OnAcquireEnd: func(_ context.Context, a engine.Acquisition, end engine.AcquireEnd) {
			if a.PartOf == "" {
				calls = append(calls, end.Outcome.String())
			}
		},
		OnHoldEnd: func(_ context.Context, a engine.Acquisition, _ engine.HoldEnd) {
			if a.PartOf == "" {
				calls = append(calls, "end")
			}
		},
		OnReleaseEnd: func(_ context.Context, _ engine.Acquisition, end engine.ReleaseEnd) {
			calls = append(calls, fmt.Sprint("released ", end.Err, " ", end.Took > 0))
		},
	}
	v := s.Open(func(c *engine.Config) { c.Observer = note })
	e := v[0]
	testkit.MustSetPermits(t, e.Semaphore("s"), 1)
	for name, run := range map[string]func(){
		"Mutex": func() { testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x"))) },
		"Do": func() {
			if err := e.Mutex("x").Do(testkit.Ctx(t), func(context.Context, *engine.Hold) error { return nil }); err != nil {
				t.Error(err)
			}
		},
		"MultiLock":  func() { testkit.MustUnlock(t, testkit.MustLockMany(t, e, []string{"a", "b"})) },
		"QuorumLock": func() { testkit.MustUnlock(t, testkit.MustRedLock(t, v.Lock("q"))) },
		"Semaphore": func() {
			if err := testkit.MustAcquire(t, e.Semaphore("s"), 1).Release(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
		},
	} {
		calls = nil
		run()
		if want := []string{"start", "granted", "end", "released <nil> true"}; !slices.Equal(calls, want) {
			t.Errorf("%s: %q, want %q", name, calls, want)
		}
	}
}

// The context that AcquireStart returns is the parent of what runs under the lock.
func TestObserver_ContextOfTheStart_IsThatOfTheHold(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open(func(c *engine.Config) { c.Observer = new(ledger) })
	e := v[0]
	outer := testkit.MustLock(t, e.Mutex("outer"))
	for name, l := range map[string]engine.Lock{"Mutex": e.Mutex("x"), "MultiLock": e.Many("a", "b"), "QuorumLock": v.Lock("q")} {
		var held *engine.Hold
		call, cancel := context.WithCancel(outer.Context(testkit.Ctx(t)))
		err := l.Do(call, func(ctx context.Context, h *engine.Hold) error {
			if numberIn(ctx) == 0 {
				t.Errorf("%s: fn has another context", name)
			}
			inside := h.Context(noContext)
			cancel()
			if ctx.Err() == nil || inside.Err() != nil || numberIn(inside) != numberIn(ctx) {
				t.Errorf("%s: %v, %v; %d and %d", name, ctx.Err(), inside.Err(), numberIn(inside), numberIn(ctx))
			}
			if _, err := e.Mutex("outer").TryLock(inside); !errors.Is(err, engine.ErrHeld) {
				t.Errorf("%s: the context of nil carries a hold of the caller's: %v", name, err)
			}
			held = h
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := context.Cause(held.Context(noContext)); !errors.Is(err, engine.ErrReleased) {
			t.Errorf("%s: after the end: %v", name, err)
		}
	}
}

// Several locks are one acquisition, with one end; what becomes of each of them is told beside that.
func TestObserver_SeveralLocks_AreOneWithParts(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	l := new(ledger)
	v := s.Open(func(c *engine.Config) { c.Observer = l })
	e := v[0]
	taken := testkit.MustLock(t, e.Mutex("b"))
	waiting := e.Many("a", "b", "c").LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it was refused", func() bool { return len(l.of(true)) > 0 })
	testkit.MustUnlock(t, taken)
	many, err := waiting.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := many.UnlockAsync().Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	q := testkit.MustRedLock(t, v.Lock("q"))
	for _, one := range v {
		if _, err := one.Mutex("q").ForceUnlock(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.RenewUntil(t, q.Done(), v...)
	l.balanced(t)
	var texts []string
	for _, ev := range l.of(false) {
		texts = append(texts, ev.String())
	}
	want := []string{
		"multilock a and 2 more ended ", "multilock a and 2 more released: <nil>", "multilock a and 2 more: granted",
		"mutex b ended ", "mutex b released: <nil>", "mutex b: granted",
		"redlock q ended removed", "redlock q: granted",
	}
	slices.Sort(texts) // those of a future come on another goroutine than the others
	if !slices.Equal(texts, want) {
		t.Errorf("got\n%q, want\n%q", texts, want)
	}
	for _, ev := range l.of(true) {
		if ev.Kind != "mutex" || ev.PartOf != "multilock" && ev.PartOf != "redlock" {
			t.Errorf("a part: %+v", ev.Acquisition)
		}
	}
}

func TestObserver_Futures_AreReportedInOrder(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	l := new(ledger)
	v := s.Open(func(c *engine.Config) { c.Observer = l })
	e := v[0]
	testkit.MustSetPermits(t, e.Semaphore("s"), 4)
	for range 15 { // many of them take turns for long
		for _, f := range []*engine.Future[*engine.Hold]{
			e.Mutex("x").LockAsync(testkit.Ctx(t)), e.Many("a", "b").LockAsync(testkit.Ctx(t)), v.Lock("q").TryLockAsync(testkit.Ctx(t)),
		} {
			f.OnComplete(func(h *engine.Hold, err error) {
				if err == nil {
					h.UnlockAsync()
				}
			})
		}
		e.Mutex("x").LockAsync(testkit.Ctx(t)).Abandon()
		e.Semaphore("s").AcquireAsync(testkit.Ctx(t), 1).OnComplete(func(p *engine.Permits, _ error) { p.ReleaseAsync() })
		e.Semaphore("s").AcquireAsync(testkit.Ctx(t), 1).Abandon()
	}
	testkit.Eventually(t, "all have ended", func() bool { starts, _ := l.all(); return starts >= 90 })
	l.balanced(t)
}

func TestObserver_Outcomes_NeedNoTexts(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or an answer does not come within CommandTimeout
		srv := testkit.Server(t)
		e, l := observed(t, srv.URL(), func(c *engine.Config) { c.CommandTimeout = 500 * time.Millisecond })
		h := testkit.MustLock(t, e.Mutex("held"))
		srv.Do("SET", "string", "x")
		late, cancelLate := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancelLate()
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		own, cancelOwn := context.WithCancelCause(context.Background())
		cancelOwn(errors.New("the user has left"))
		held := e.Mutex("held")
		for _, c := range []struct {
			want engine.Outcome
			do   func() error
		}{
			{engine.Granted, func() error {
				return held.Do(h.Context(testkit.Ctx(t)), func(context.Context, *engine.Hold) error { return nil })
			}},
			{engine.Refused, func() error { return testkit.ErrOf(held.TryLock(testkit.Ctx(t))) }},
			{engine.TimedOut, func() error { return testkit.ErrOf(held.Lock(testkit.Ctx(t), engine.Wait(time.Millisecond))) }},
			{engine.TimedOut, func() error { return testkit.ErrOf(held.Lock(late)) }},
			{engine.Canceled, func() error { return testkit.ErrOf(held.Lock(gone)) }},
			{engine.Canceled, func() error { return testkit.ErrOf(held.Lock(own)) }},
			{engine.Invalid, func() error { return testkit.ErrOf(held.Lock(testkit.Ctx(t), engine.Lease(-1))) }},
			{engine.Invalid, func() error { return testkit.ErrOf(e.RWMutex("held").Writer().Lock(testkit.Ctx(t))) }},
			{engine.Invalid, func() error { return testkit.ErrOf(held.Lock(h.Context(testkit.Ctx(t)), engine.NonReentrant())) }},
			{engine.Failed, func() error { return testkit.ErrOf(e.Mutex("string").Lock(testkit.Ctx(t))) }},
			{engine.Unavailable, func() error {
				srv.Stop()
				defer srv.Cont()
				return testkit.ErrOf(e.Mutex("away").TryLock(testkit.Ctx(t)))
			}},
			{engine.Closed, func() error {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				return testkit.ErrOf(held.TryLock(testkit.Ctx(t)))
			}},
		} {
			err := c.do()
			var last event
			for _, ev := range l.of(false) {
				if ev.acquire != nil {
					last = ev
				}
			}
			if last.acquire.Outcome != c.want || (err == nil) != (c.want == engine.Granted) {
				t.Errorf("%v of %v, want %v", last.acquire.Outcome, err, c.want)
			}
		}
	})
}

// An Observer that fails must not leave a lock behind that nobody has.
func TestObserver_PanicsAtTheGrant_LockIsReleased(t *testing.T) {
	t.Parallel()
	e := testkit.Open(t, testkit.Server(t).URL(), func(c *engine.Config) {
		c.Observer = engine.ObserverFuncs{OnAcquireEnd: func(_ context.Context, a engine.Acquisition, _ engine.AcquireEnd) {
			if a.Try && a.PartOf == "" {
				panic("a bug of the Observer's")
			}
		}}
	})
	testkit.MustSetPermits(t, e.Semaphore("s"), 1)
	for name, try := range map[string]func(){
		"Mutex":     func() { _, _ = e.Mutex("x").TryLock(testkit.Ctx(t)) },
		"MultiLock": func() { _, _ = e.Many("x", "y").TryLock(testkit.Ctx(t)) },
		"Semaphore": func() { _, _ = e.Semaphore("s").TryAcquire(testkit.Ctx(t), 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			try()
		}()
	}
	testkit.MustUnlock(t, testkit.MustLockMany(t, e, []string{"x", "y"}))
	if err := testkit.MustAcquire(t, e.Semaphore("s"), 1).Release(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
}

// An Observer whose queue stands still holds up nobody; Close gives up on it.
func TestObserver_Blocks_StopsItsQueueOnly(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	defer close(gate)
	e := testkit.Open(t, testkit.Server(t).URL(), func(c *engine.Config) {
		c.CloseTimeout = 300 * time.Millisecond
		c.Observer = engine.ObserverFuncs{OnAcquireEnd: func(context.Context, engine.Acquisition, engine.AcquireEnd) { <-gate }}
	})
	for range 100 {
		h, err := e.Mutex("x").LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
	}
	if err := e.Close(); !errors.Is(err, engine.ErrPending) {
		t.Errorf("Close: %v", err)
	}
}

// attached is an Observer that wants the Engine.
type attached struct {
	engine.ObserverFuncs
	to *engine.Engine
}

func (a *attached) Attach(e *engine.Engine) { a.to = e }

func TestObservers_Several_AreCalledInOrder(t *testing.T) {
	t.Parallel()
	if engine.Observers() != nil || engine.Observers(nil, nil) != nil {
		t.Error("an Observer of none")
	}
	a, l := new(attached), new(ledger)
	a.OnAcquireEnd = func(ctx context.Context, _ engine.Acquisition, _ engine.AcquireEnd) {
		if _, events := l.all(); numberIn(ctx) == 0 || len(events) > 0 {
			t.Error("called without the context of all, or after the second")
		}
	}
	e := testkit.Open(t, testkit.Server(t).URL(), func(c *engine.Config) { c.Observer = engine.Observers(nil, a, l) })
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	if a.to.ID() != e.ID() {
		t.Error("the Engine was not attached")
	}
	l.balanced(t)
}

// One that panics takes no event from the others, and what they were told has begun has an end.
func TestObservers_OnePanics_OthersHaveEachEvent(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	for _, at := range []string{"AcquireStart", "AcquireEnd", "HoldEnd", "ReleaseEnd"} {
		panics := func(here string) {
			if here == at {
				panic("a bug of the Observer's")
			}
		}
		before, after := new(ledger), new(ledger)
		bad := engine.ObserverFuncs{
			OnAcquireStart: func(ctx context.Context, _ engine.Acquisition) context.Context {
				panics("AcquireStart")
				return ctx
			},
			OnAcquireEnd: func(context.Context, engine.Acquisition, engine.AcquireEnd) { panics("AcquireEnd") },
			OnHoldEnd:    func(_ context.Context, _ engine.Acquisition, _ engine.HoldEnd) { panics("HoldEnd") },
			OnReleaseEnd: func(context.Context, engine.Acquisition, engine.ReleaseEnd) { panics("ReleaseEnd") },
		}
		e := testkit.Open(t, srv.URL(), func(c *engine.Config) { c.Observer = engine.Observers(before, bad, after) })
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", at)
				}
			}()
			h, err := e.Mutex(at).Lock(testkit.Ctx(t))
			if err != nil {
				t.Error(err)
				return
			}
			_ = h.Unlock(testkit.Ctx(t))
		}()
		before.balanced(t)
		after.balanced(t)
		_, first := before.all()
		_, second := after.all()
		if at == "AcquireStart" && (len(first) != 1 || first[0].acquire.Outcome != engine.Canceled || len(second) != 0) {
			t.Errorf("%s: %v, %v", at, first, second)
		}
		if at != "AcquireStart" && (len(first) < 2 || len(second) != len(first)) {
			t.Errorf("%s: %v, %v", at, first, second)
		}
	}
}
