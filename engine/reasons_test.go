package engine

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/wheel"
)

// timer is a context whose time is over when the test says so.
type timer struct {
	context.Context
	done chan struct{}
}

func newTimer() *timer { return &timer{context.Background(), make(chan struct{})} }

func (c *timer) Done() <-chan struct{} { return c.done }

func (c *timer) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// waiter waits for a lock, and can be told to stop.
type waiter struct {
	way  string
	fut  *Future[*Hold]
	stop func()
}

// waiters wait for m in every way that ends by itself or by its context.
func waiters(m Mutex) []waiter {
	over := newTimer()
	ctx, cancel := context.WithCancel(context.Background())
	return []waiter{
		{"Wait is over", m.LockAsync(context.Background(), Wait(50*time.Millisecond)), func() {}},
		{"the context's time is over", m.LockAsync(over), func() { close(over.done) }},
		{"the context is cancelled", m.LockAsync(ctx), cancel},
	}
}

// saying is what an error says of the lock.
type saying struct {
	held, unavailable bool
	text              string // a regular expression
}

// wantReason checks the error of a caller that did not get the lock "orders:42".
func wantReason(t testing.TB, way string, err error, want saying) {
	t.Helper()
	var e *NotAcquiredError
	if !errors.Is(err, ErrNotAcquired) || !errors.As(err, &e) || e.Name != "orders:42" {
		t.Fatalf("%s: %v, want a NotAcquiredError with the name", way, err)
	}
	if errors.Is(err, ErrHeld) != want.held || errors.Is(err, ErrUnavailable) != want.unavailable {
		t.Errorf("%s: held %t, unavailable %t: %v", way, errors.Is(err, ErrHeld), errors.Is(err, ErrUnavailable), err)
	}
	text := err.Error()
	if !regexp.MustCompile(want.text).MatchString(text) {
		t.Errorf("%s: %s\nwant %s", way, text, want.text)
	}
	if !strings.HasPrefix(text, `engine: lock "orders:42" not acquired: `) || strings.Contains(text, "\n") ||
		strings.Count(text, "engine:") != 1 || strings.Contains(text, "resp:") || strings.Count(text, "not acquired") != 1 {
		t.Errorf("%s: it stutters: %q", way, text)
	}
}

// stopped ends the waiters and checks what they are told.
func stopped(t testing.TB, list []waiter, want saying) {
	t.Helper()
	for _, w := range list {
		w.stop()
		wantReason(t, w.way, errOf(w.fut.Await(ctxT(t))), want)
	}
}

var (
	heldElsewhere = saying{held: true, text: `: held by another, whose lease ends in (1m0s|\d\ds) unless renewed$`}
	heldHere      = saying{held: true, text: `: held by this process, whose lease ends in \d\ds unless renewed$`}
	refused       = saying{unavailable: true, text: `: server is unavailable: dial 127\.0\.0\.1:\d+: connect: connection refused$`}
	silent        = saying{unavailable: true, text: `: server is unavailable: no answer yet$`}
)

// told waits until the name's latest try has been told something.
func told(t testing.TB, m Mutex, what machine.Tried) {
	t.Helper()
	sh := m.home.table.Shard(m.route)
	eventually(t, "the latest try has been told", func() bool {
		sh.Lock()
		defer sh.Unlock()
		r := sh.Find(m.key)
		return r != nil && r.View().Tried == what
	})
}

// trouble is in trouble_test.go: a server, a network, an engine.
func newReasons(t testing.TB) (*trouble, Mutex) {
	tr := newTrouble(t)
	return tr, tr.e.Mutex("orders:42")
}

// refuse takes the server away and waits until the engine has found that out.
func (t *trouble) refuse(m Mutex) {
	t.Helper()
	t.net.Down()
	eventually(t, "it cannot be reached", func() bool { return hasText(t.e.table.Client.LaneError(m.route), "refused") })
}

func TestWhoWaitsForAnotherProcessIsToldThatItIsHeld(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
	head := m.LockAsync(ctxT(t))
	told(t, m, machine.Elsewhere)
	stopped(t, waiters(m), heldElsewhere) // none of them has tried
	head.Abandon()
	wantReason(t, "Abandon", errOf(head.Result()), heldElsewhere)
	var e *NotAcquiredError
	err := errOf(m.TryLock(ctxT(t)))
	wantReason(t, "TryLock", err, heldElsewhere)
	if !errors.As(err, &e) || e.TTL < 30*time.Second || e.TTL > time.Minute {
		t.Errorf("TTL is %v", e.TTL)
	}
}

// What the head has learnt is the next one's, too, when it is gone.
func TestTheNextInTheQueueKnowsWhatTheHeadHasLearnt(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
	head := m.LockAsync(ctxT(t))
	told(t, m, machine.Elsewhere)
	tr.net.Pause(faultproxy.All) // nobody learns anything by himself
	defer tr.net.Resume()
	next := waiters(m)
	head.Abandon()
	stopped(t, next, heldElsewhere)
}

func TestWhoWaitsForThisProcessIsToldThatItIsHeld(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	h := mustLock(t, m)
	stopped(t, waiters(m), heldHere)
	wantReason(t, "TryLock", errOf(m.TryLock(ctxT(t))), heldHere)
	tr.refuse(m) // it is still held
	defer tr.net.Up()
	stopped(t, waiters(m), heldHere)
	// Until it is given back, which nobody can be told.
	h.UnlockAsync()
	told(t, m, machine.Unanswered)
	stopped(t, waiters(m), refused)
}

func TestWhoWaitsForAReentryIsToldWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	under := mustLock(t, m).Context(context.Background())
	child, err := m.Lock(under)
	if err != nil {
		t.Fatal(err)
	}
	behind := m.LockAsync(under, Wait(50*time.Millisecond))
	wantReason(t, "behind a re-entry", errOf(behind.Await(ctxT(t))), heldHere)
	mustUnlock(t, child)
	tr.refuse(m)
	defer tr.net.Up()
	alone := m.LockAsync(under, Wait(50*time.Millisecond))
	wantReason(t, "without a server", errOf(alone.Await(ctxT(t))), refused)
}

func TestWhoWaitsWithoutAServerIsToldThatItIsUnavailable(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
	head := m.LockAsync(ctxT(t))
	told(t, m, machine.Elsewhere)
	tr.refuse(m)
	eventually(t, "the next try could not be sent", func() bool {
		_, err := m.LockAsync(context.Background(), Wait(time.Millisecond)).Await(ctxT(t))
		return errors.Is(err, ErrUnavailable)
	})
	stopped(t, waiters(m), refused)
	wantReason(t, "TryLock", errOf(m.TryLock(ctxT(t))), refused)
	stopped(t, waiters(m), refused)
	// When it is back, the lock is held again.
	tr.net.Up()
	eventually(t, "the server says so", func() bool {
		_, err := m.LockAsync(context.Background(), Wait(time.Millisecond)).Await(ctxT(t))
		return errors.Is(err, ErrHeld)
	})
	stopped(t, waiters(m), heldElsewhere)
	head.Abandon()
}

// The head's first try is out, and the others wait for it, too. One that
// cancels does not know what the server would have said; one whose time is over knows that
// it said nothing.
func TestWhoWaitsForASilentServerIsNotToldThatItIsHeld(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	// A head that has left knew something. That is over.
	mustUnlock(t, mustLock(t, m))
	tr.net.Pause(faultproxy.All)
	defer tr.net.Resume()
	first, second := waiters(m), waiters(m)
	for _, list := range [][]waiter{second, first} {
		stopped(t, list[:2], silent)
		stopped(t, list[2:], saying{text: `: context canceled: the server had not answered yet$`})
	}
}

// What it asks is whether the lock is held now. If the server hangs, nobody knows: not from
// what others were told before, nor from what this process has given back since.
func TestATryLockWithoutAnAnswerIsNotToldThatItIsHeld(t *testing.T) {
	t.Parallel()
	for way, begin := range map[string]func(t *testing.T, tr *trouble, m Mutex){
		"behind an Unlock": func(t *testing.T, tr *trouble, m Mutex) {
			h := mustLock(t, m)
			tr.net.Pause(faultproxy.All)
			h.UnlockAsync()
		},
		"beside a waiter that was refused": func(t *testing.T, tr *trouble, m Mutex) {
			mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
			m.LockAsync(ctxT(t))
			told(t, m, machine.Elsewhere)
			eventually(t, "it sleeps", func() bool { return tr.e.Stats().InFlight == 0 })
			tr.net.Pause(faultproxy.All)
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			tr, m := newReasons(t)
			begin(t, tr, m)
			defer tr.net.Resume()
			twoTries(m).areUnanswered(t)
		})
	}
}

// That the lock was given back was answered, and nothing since.
func TestATryLockBehindOneWithoutAnAnswerIsNotToldThatItIsHeld(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	h := mustLock(t, m)
	mute := tr.net.ReplaceReply(acquireOf(m.Name()), nil, 1000)
	defer tr.net.Cut(faultproxy.All) // or Close waits for the answer
	tr.net.Pause(faultproxy.All)
	released := h.UnlockAsync()
	m.TryLockAsync(ctxT(t))
	others := twoTries(m)
	tr.net.Resume()
	if err := errOf(released.Await(ctxT(t))); err != nil {
		t.Fatal(err)
	}
	mute.Wait(1)
	others.areUnanswered(t)
}

// tries are two TryLocks, of which one is given up when its context's time is over, and the
// other after CommandTimeout.
type tries struct {
	over          *timer
	first, second *Future[*Hold]
}

func twoTries(m Mutex) tries {
	over := newTimer()
	return tries{over, m.TryLockAsync(over), m.TryLockAsync(context.Background())}
}

// areUnanswered gives both up, and has them told that the server did not answer.
func (tr tries) areUnanswered(t *testing.T) {
	t.Helper()
	close(tr.over.done)
	wantReason(t, "the context's time is over", errOf(tr.first.Await(ctxT(t))), silent)
	tr.second.source.(*acquisition).giveUpNow()
	wantReason(t, "CommandTimeout is over", errOf(tr.second.Await(ctxT(t))), silent)
}

// Its lease is over, and whether it was released nobody knows: this process has it no more.
func TestALockWhoseReleaseWasGivenUpIsNotHeldHere(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	h := mustLock(t, m, Lease(time.Second)) // half of CommandTimeout
	tr.net.Pause(faultproxy.All)
	defer tr.net.Resume()
	if err := errOf(h.UnlockAsync().Await(ctxT(t))); !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	stopped(t, waiters(m)[:2], silent)
}

// giveUpNow has a TryLock give up as after Config.CommandTimeout.
func (a *acquisition) giveUpNow() {
	a.Shard.Lock()
	if a.Bounded() == nil { // it has its turn already
		a.GiveUpAt(a.Shard.Now().Add(time.Hour))
	}
	d := a.Bounded().(wheel.Task)
	a.Shard.Unlock()
	d.Fire(nil, 0)
}

// What was known of a name is forgotten when nobody waits for it.
func TestWhatWasKnownOfANameDoesNotOutliveThoseWhoWaited(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
	head := m.LockAsync(ctxT(t))
	eventually(t, "it was refused again after it began to listen, and sleeps", func() bool {
		sh := tr.e.table.Shard(m.route)
		sh.Lock()
		defer sh.Unlock()
		r := sh.Find(m.key)
		v := r.View()
		return v.Attempts == 2 && v.What == machine.Nothing
	})
	head.Abandon()
	tr.net.Pause(faultproxy.All)
	defer tr.net.Resume()
	stopped(t, waiters(m)[:2], silent)
}

func TestAContextThatHasEndedSaysNothingOfTheLock(t *testing.T) {
	t.Parallel()
	_, m := newReasons(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("the client went away")
	cancel(why)
	for way, err := range everyLock(ctx, m) {
		wantReason(t, way, err, saying{text: `: the client went away$`})
		if !errors.Is(err, why) {
			t.Errorf("%s: the cause is not in it: %v", way, err)
		}
	}
}

// nosy is a cause whose text asks the engine, as an error with a lazy text may.
type nosy struct {
	ask   func()
	asked atomic.Bool
}

func (n *nosy) Error() string {
	n.ask()
	n.asked.Store(true)
	return "nosy"
}

func (n *nosy) Is(error) bool { n.ask(); return false }

// The text of an error is made when it is read, by the reader; not by the engine,
// under a lock that the text would need.
func TestTheTextOfACauseMayUseTheEngine(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	h := mustLock(t, m)
	tr.net.Down()
	defer tr.net.Up()
	h.UnlockAsync()
	told(t, m, machine.Unanswered) // there are two things to say
	cause := &nosy{ask: func() { _, _, _ = h.Err(), h.Acked(), tr.e.Stats() }}
	for _, wait := range []func(ctx context.Context) error{
		func(ctx context.Context) error { return errOf(m.Lock(ctx)) },
		func(ctx context.Context) error { return errOf(m.LockAsync(ctx).Await(context.Background())) },
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- wait(ctx) }()
		eventually(t, "it waits", func() bool { return tr.e.Stats().Waiting == 1 })
		cancel(cause)
		err := receive(t, ended)
		if cause.asked.Load() {
			t.Error("the engine read the text")
		}
		wantReason(t, "a cause that asks", err, saying{unavailable: true, text: `: nosy: server is unavailable: `})
		cause.asked.Store(false)
	}
}

func TestTextsOfErrorsAreForPeople(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	s.Do("SET", "text", "of another library")
	under := mustLock(t, e.Mutex("y")).Context(ctxT(t))
	for want, err := range map[string]error{
		`engine: lock "text" not acquired: key is of another type: WRONGTYPE Operation against a key holding the wrong kind of value`:                              errOf(e.Mutex("text").TryLock(ctxT(t))),
		`engine: lock "text": key is of another type: WRONGTYPE Operation against a key holding the wrong kind of value`:                                           errOf(e.Mutex("text").State(ctxT(t))),
		`engine: lock "z" not acquired: invalid argument: Lease (4ms) must be longer than the safety margin (5ms): such a hold would be over before it is granted`: errOf(e.Mutex("z").TryLock(ctxT(t), Lease(4*time.Millisecond))),
		`engine: lock not acquired: invalid argument: the name of a lock must not be empty`:                                                                        errOf(e.Mutex("").TryLock(ctxT(t))),
		`engine: lock "y" not acquired: held by this context already`:                                                                                              errOf(e.Mutex("y").TryLock(under, NonReentrant())),
		`engine: lock "z" not acquired: 0 of 1 replicas acknowledged (AckTimeout 1s); see that they are attached and keep up, or ask for fewer`:                    errOf(e.Mutex("z").TryLock(ctxT(t), Acked(1))),
		`engine: invalid argument: Config.DB (-1) must not be negative; Config.Lanes (65) must be within 1 and 64`:                                                 errOf(New(ctxT(t), Config{DB: -1, Lanes: 65})),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

func TestDurationsInTextsAreRounded(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		26*time.Second + 999775281: "27s", 9*time.Second + 951234567: "10s", 1234567890: "1.2s", 99876543: "100ms", 1: "1ms",
		time.Hour + 29*time.Minute + 1: "1h29m0s",
	} {
		err := notAcquired("x", &reason.Held{TTL: d})
		if text := `engine: lock "x" not acquired: held by another, whose lease ends in ` + want + " unless renewed"; err.Error() != text || err.TTL != d {
			t.Errorf("%v: %v, %v", d, err, err.TTL)
		}
	}
	for _, d := range []time.Duration{-1, 0} {
		if text := notAcquired("x", &reason.Held{TTL: d}).Error(); strings.ContainsAny(text, "0123456789") {
			t.Errorf("%v: %s", d, text)
		}
	}
}
