package interop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// wait is a thing that one side holds and the other side waits for, on one stage and of one name.
type wait struct {
	stage       *stage
	about       string // what its names begin with
	polls       bool   // see kind
	composed    bool
	holds       door // Pawl's
	waits       door
	javaHolds   javaDoor
	javaWaits   javaDoor
	javaThreads string // begins the names of threads
}

// javaDoor is what Java is asked when it goes in, and when it comes out again: words of questions. If it was
// told an id it needs that to leave.
type javaDoor struct{ enter, leave []any }

// waitKind is one kind of waits, and how soon half of the waiters must be woken.
type waitKind struct {
	name    string
	grounds []ground
	wakes   time.Duration
	counts  bool // has a number on the server, which stays
	made    func(t *testing.T, s *stage, about string) *wait
}

// waitKinds are all that one can wait for.
func waitKinds() (all []waitKind) {
	for _, k := range kinds {
		all = append(all, lockWait(k.name, k, k))
	}
	writing := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.writes })]
	const wakes = 50 * time.Millisecond
	return append(all,
		lockWait("RWMutex.Reader of a writer", writing, reading),
		lockWait("RWMutex.Writer of a reader", reading, writing),
		waitKind{"Semaphore", permitGrounds, wakes, true, semaphoreWait},
		waitKind{"PermitSemaphore", permitGrounds, wakes, true, permitWait},
		waitKind{"Latch", permitGrounds, wakes, true, latchWait})
}

// lockWait is one who waits while another holds the lock, or the other half of it.
func lockWait(name string, holds, waits kind) waitKind {
	return waitKind{name, waits.grounds(), waits.wakes, false, func(t *testing.T, s *stage, about string) *wait {
		x := s.subject(t, waits, name+" "+about)
		y := *x
		y.kind, y.locker = holds, holds.pawl(s.engines, x.names)
		ask := func(x *subject) javaDoor {
			return javaDoor{[]any{"lock", x.java, x.places, -1}, []any{"unlock", x.java, x.places}}
		}
		return &wait{stage: s, about: x.about, polls: waits.polls, composed: waits.composed, javaThreads: x.thread("wake"),
			holds: y.door, waits: x.door, javaHolds: ask(&y), javaWaits: ask(x)}
	}}
}

func semaphoreWait(t *testing.T, s *stage, about string) *wait {
	c := counted{s, "semaphore/" + about}
	sem := s.engines[0].Semaphore(c.name)
	if _, err := sem.TrySetPermits(testkit.Ctx(t), 1); err != nil {
		t.Fatal(err)
	}
	return c.wait(func(ctx context.Context) (func(ctx context.Context) error, error) {
		p, err := sem.Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	}, javaDoor{[]any{"semaphore-acquire", c.place(), 1}, []any{"semaphore-release", c.place(), 1}})
}

func permitWait(t *testing.T, s *stage, about string) *wait {
	c := counted{s, "permits/" + about}
	sem := s.engines[0].PermitSemaphore(c.name)
	if err := sem.SetPermits(testkit.Ctx(t), 1); err != nil {
		t.Fatal(err)
	}
	return c.wait(func(ctx context.Context) (func(ctx context.Context) error, error) {
		h, err := sem.Acquire(ctx, 1)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	}, javaDoor{[]any{"permits-take", c.place(), 1, 60_000, 60_000}, []any{"permits-give", c.place()}})
}

// wait is for what both sides hold and wait for in the same way.
func (c counted) wait(pawl door, java javaDoor) *wait {
	return &wait{stage: c.stage, about: c.name, javaThreads: c.clients[0] + ":" + c.name,
		holds: pawl, waits: pawl, javaHolds: java, javaWaits: java}
}

// latchWait is one who waits for the last CountDown.
func latchWait(_ *testing.T, s *stage, about string) *wait {
	c := counted{s, "latch/" + about}
	latch := s.engines[0].Latch(c.name)
	w := c.wait(nil, javaDoor{[]any{"latch-set", c.place(), 1}, []any{"latch-down", c.place()}})
	w.holds = func(ctx context.Context) (func(ctx context.Context) error, error) {
		_, err := latch.TrySetCount(ctx, 1)
		return latch.CountDown, err
	}
	w.waits = func(ctx context.Context) (func(ctx context.Context) error, error) {
		return func(context.Context) error { return nil }, latch.Await(ctx)
	}
	w.javaWaits = javaDoor{[]any{"latch-await", c.place(), 60_000}, []any{"ping"}}
	return w
}

// ask has a thread of Java do something.
func (w *wait) ask(thread string, question []any) answer {
	return w.stage.jvm.ask(w.javaThreads+":"+thread, question[0].(string), question[1:]...)
}

// enter has a thread of Java go in, and returns how it leaves.
func (w *wait) enter(t testing.TB, thread string, d javaDoor) (leave []any) {
	t.Helper()
	return d.left(w.ask(thread, d.enter).want(t))
}

// left is the query that leaves. Java was told that, when it came in.
func (d javaDoor) left(notified string) []any {
	if len(notified) == 32 {
		return append(slices.Clone(d.leave), notified)
	}
	return d.leave
}

func timed(question []any) []any { return append([]any{"timed"}, question...) }

// toJava has Java wait for Pawl: from when Pawl begins to release until the thread of Java goes on.
func (w *wait) toJava(t testing.TB) time.Duration {
	t.Helper()
	ctx := testkit.Within(t, patience)
	leave, err := w.holds(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var waits answer
	begin := func() { waits = w.ask("waiter", timed(w.javaWaits.enter)) }
	if w.polls {
		w.stage.polls(t, begin)
	} else {
		begin()
		w.stage.jvm.asleep(t, waits)
	}
	released := time.Now().Round(0) // both read the same clock
	if err := leave(ctx); err != nil {
		t.Fatal(err)
	}
	_, through, notified := waits.timed(t)
	w.ask("waiter", w.javaWaits.left(notified)).want(t)
	return through.Sub(released)
}

// toGo has Pawl wait for Java.
func (w *wait) toGo(t testing.TB) time.Duration {
	t.Helper()
	ctx := testkit.Within(t, patience)
	out := w.enter(t, "holder", w.javaHolds)
	type entered struct {
		at    time.Time
		leave func(ctx context.Context) error
		err   error
	}
	in := make(chan entered, 1)
	begin := func() {
		go func() {
			leave, err := w.waits(ctx)
			in <- entered{time.Now().Round(0), leave, err}
		}()
	}
	switch {
	case w.polls:
		w.stage.polls(t, begin)
	case w.composed: // engines and names ask in turn
		begin()
		testkit.Eventually(t, "Go waits", func() bool { return w.stage.listeners(w.about) > 0 })
	default:
		w.stage.asleep(t, w.stage.engines[0], w.about, begin)
	}
	if len(in) > 0 {
		t.Fatal("both have it")
	}
	released, _, _ := w.ask("holder", timed(out)).timed(t)
	woken := testkit.Receive(t, in)
	if woken.err != nil {
		t.Fatal(woken.err)
	}
	if err := woken.leave(ctx); err != nil {
		t.Fatal(err)
	}
	return woken.at.Sub(released)
}

// A release of one wakes a waiter of the other, which sleeps: it was refused, has subscribed, and was refused
// again. A waiter that looks by itself, after 5 to 10 s, fails the test, as does one that sleeps until the end
// of the lease of 30 s. What is measured
// begins before the release is called, and ends when the waiter's call returns; and with it a round trip
// as callers of the waiting side see it: a PING by Pawl, an EXISTS by Redisson.
func TestAReleaseWakesTheOther(t *testing.T) {
	stages := make(map[string]*stage)
	for _, k := range waitKinds() {
		for _, g := range k.grounds {
			if stages[g.name] == nil {
				stages[g.name] = newStage(t, g, calm)
			}
			t.Run(k.name+"/"+g.name, func(t *testing.T) { k.measure(t, stages[g.name]) })
			if !t.Failed() && !k.counts { // these come first
				stages[g.name].clean(t)
			}
		}
	}
}

func (k waitKind) measure(t *testing.T, s *stage) {
	var wakes, trips [2]times      // to Java, to Go
	for n := range pick(20, 200) { // with new names, which nobody listens to yet
		java, pawl := k.made(t, s, fmt.Sprint("to-Java-", n)), k.made(t, s, fmt.Sprint("to-Go-", n))
		began, ended, _ := s.jvm.ask(s.clients[0], "timed", "locked", "plain", s.clients[0]+"/nothing").timed(t)
		trips[0] = append(trips[0], ended.Sub(began))
		wakes[0] = append(wakes[0], java.toJava(t))

		began = time.Now()
		if err := s.engines[0].Ping(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		trips[1] = append(trips[1], time.Since(began))
		wakes[1] = append(wakes[1], pawl.toGo(t))
		if late := max(3*time.Second, 3*k.wakes); max(wakes[0][n], wakes[1][n]) > late {
			t.Fatalf("Go woke Java after %v, Java Go after %v", wakes[0][n], wakes[1][n])
		}
	}
	for i, way := range []string{"Go wakes Java", "Java wakes Go"} {
		wake, trip := wakes[i], trips[i]
		slices.Sort(wake)
		slices.Sort(trip)
		t.Logf("%s: %.1f round trips; p50 %v, longest %v; a round trip: p50 %v", way,
			float64(wake.part(50))/float64(trip.part(50)), wake, wake.part(100), trip)
		if p50 := wake.part(50); p50 > k.wakes {
			t.Errorf("%s: p50 %v, want at most %v", way, p50, k.wakes)
		}
	}
}

// times are sorted before they are asked.
type times []time.Duration

func (all times) part(percent int) time.Duration { return all[min(len(all)*percent/100, len(all)-1)] }

// String is the median, and the first and the third quarter.
func (all times) String() string {
	return fmt.Sprintf("%d µs (%d to %d)", all.part(50).Microseconds(), all.part(25).Microseconds(), all.part(75).Microseconds())
}

// mustLock locks as Pawl does.
func (x *subject) mustLock(t testing.TB) hold {
	t.Helper()
	h, err := x.lock(testkit.Within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// whileItWaits has Java do something, and returns when that waits for the lock.
func (x *subject) whileItWaits(t testing.TB, begin func() answer) (a answer) {
	t.Helper()
	if x.polls {
		x.stage.polls(t, func() { a = begin() })
		return a
	}
	a = begin()
	x.stage.jvm.asleep(t, a)
	return a
}
