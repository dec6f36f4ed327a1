package engine

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// everyLock calls every form of acquiring and returns the errors by name.
func everyLock(ctx context.Context, m Mutex, opts ...Option) map[string]error {
	never := func(context.Context, *Hold) error { panic("ran without the lock") }
	errs := map[string]error{
		"Lock":         errOf(m.Lock(ctx, opts...)),
		"TryLock":      errOf(m.TryLock(ctx, opts...)),
		"LockAsync":    errOf(m.LockAsync(ctx, opts...).Await(ctx)),
		"TryLockAsync": errOf(m.TryLockAsync(ctx, opts...).Await(ctx)),
		"Do":           m.Do(ctx, never, opts...),
		"TryDo":        errOf(m.TryDo(ctx, never, opts...)),
	}
	return errs
}

func TestTryDo_Outage_IsNotHeld(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	never := func(context.Context, *Hold) error { t.Error("it ran without the lock"); return nil }
	h := mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"))
	if ran, err := m.TryDo(ctxT(t), never); ran || err != nil {
		t.Errorf("held: %t, %v", ran, err)
	}
	if ran, err := m.TryDo(ended(), never); ran || !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotRun) {
		t.Errorf("under a context that has ended: %t, %v", ran, err)
	}
	mustUnlock(t, h)
	tr.net.Down()
	defer tr.net.Up()
	if ran, err := m.TryDo(ctxT(t), never); ran || !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrNotRun) || errors.Is(err, ErrHeld) {
		t.Errorf("without a server: %t, %v", ran, err)
	}
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// The table of docs/errors.md is true: each operation returns the errors that the table marks for
// it, joined as the table says, and no other. The columns of a lock and its hold are true of a
// MultiLock and of a QuorumLock, too.
func TestErrors_Table_IsTrue(t *testing.T) {
	t.Parallel()
	operations, marks := errorTable(t)
	var on []*redistest.Server
	for range placesOf["RedLock"] {
		on = append(on, redistest.Start(t, redistest.Line(manyDatabases)))
	}
	for sentinel, row := range marks {
		for _, operation := range operations {
			kinds := []string{"Mutex"}
			switch operation {
			case "Lock", "Try", "Async", "Do", "Unlock", "Extend", "Await", "Err":
				kinds = []string{"Mutex", "Multi", "RedLock"}
			}
			for _, kind := range kinds {
				if row[operation] == "." || sentinel == "ErrInvalid" && operation == "Await" && kind != "Mutex" { // of no lock
					continue
				}
				t.Run(kind+"/"+sentinel+"/"+operation, func(t *testing.T) {
					t.Parallel()
					provoked(t, on, kind, sentinel, operation, marks)
				})
			}
		}
	}
}

// A label that is missing, or that two reasons share, is noticed only when somebody needs the metric.
func TestLostReason_Code_IsUniqueAndComplete(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	doc := regexp.MustCompile(`(?s)// Code is .*?\nfunc`).FindString(string(source))
	seen := make(map[string]LostReason)
	for r := LostReason(1); int(r) < lock.Losses; r++ {
		code := r.Code()
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(code) || code == "unknown" {
			t.Errorf("%v: the label %q", r, code)
		}
		if other, twice := seen[code]; twice {
			t.Errorf("%v and %v are both %s", r, other, code)
		}
		if !strings.Contains(doc, code) {
			t.Errorf("the documentation of Code does not name %s", code)
		}
		seen[code] = r
	}
	for r, want := range map[LostReason]string{0: "", LostReason(lock.Losses): "unknown", 255: "unknown", LeaseEnded: "lease_ended", RemovedOnServer: "removed"} {
		if got := r.Code(); got != want {
			t.Errorf("%d: %q, want %q", uint8(r), got, want)
		}
	}
}

// An error in a log, far from the code, says which lock it is about, and why the server did
// not answer.
func TestErrors_Text_SaysWhichLockAndWhy(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) { // or a connection without an answer is given up
		tr, m := newReasons(t)
		gone, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the request is gone"))
		ctx := ctxT(t)

		h := mustLock(t, m, Lease(time.Minute))
		watched := mustLock(t, tr.e.Mutex("watched"))
		says(t, "Extend of a watched hold", watched.Extend(ctx, time.Minute), ErrInvalid, `invalid argument: Extend on a hold .*`)
		_, err := tr.e.Mutex("orders:42").ForceUnlock(ctx, IfHolder(""))
		says(t, "IfHolder", err, ErrInvalid, `invalid argument: IfHolder must .*`)
		tr.net.Pause(faultproxy.All)
		says(t, "Extend given up", h.Extend(gone, time.Minute), ErrOutcomeUnknown, `outcome unknown: the request is gone`)
		says(t, "State with an ended context", errOf(m.State(gone)), ErrUnavailable, `the server was not asked: the request is gone`)
		says(t, "State given up", errOf(m.State(tr.soon())), ErrUnavailable, `no answer from the server: context deadline exceeded`)
		says(t, "ForceUnlock given up", errOf(m.ForceUnlock(tr.soon(), IfHolder("x"))), ErrOutcomeUnknown, `outcome unknown: context deadline exceeded`)
		tr.net.Resume()
		mustUnlock(t, h)
		says(t, "Unlock again", h.Unlock(ctx), ErrNotHeld, `not held: it was unlocked already`)
		says(t, "Extend after Unlock", h.Extend(ctx, time.Minute), ErrNotHeld, `not held: it was unlocked already`)
		if err := tr.s.Redis().Set("text", "x"); err != nil {
			t.Fatal(err)
		}
		says(t, "State of a string", errOf(tr.e.Mutex("text").State(ctx)), ErrWrongType, `key is of another type: WRONGTYPE .*`)

		h = mustLock(t, m, Lease(time.Minute))
		impatient := open(t, "redis://"+tr.net.Addr()+"?command_timeout=100ms")
		defer tr.net.Up() // or Close would wait
		tr.refuse(m)
		eventually(t, "it cannot be reached", func() bool { return hasText(impatient.table.Client.LaneError(m.route), "refused") })
		const refused = `dial 127\.0\.0\.1:\d+: connect: connection refused`
		says(t, "Unlock given up", h.Unlock(gone), ErrOutcomeUnknown, `outcome unknown: the request is gone: `+refused)
		says(t, "State without a server", errOf(m.State(tr.soon())), ErrUnavailable, `server is unavailable: context deadline exceeded: `+refused)
		if err := tr.e.Ping(ctx); !errors.Is(err, ErrUnavailable) || !hasText(err, "connection refused") { // at once: the latest dial was refused
			t.Errorf("Ping: %v", err)
		}
		says(t, "State after CommandTimeout", errOf(impatient.Mutex("orders:42").State(ctx)), ErrUnavailable, `server is unavailable: `+refused)
	})
}

// says checks an error about a lock: what it is, and its text after the lock's name.
func says(t testing.TB, what string, err, is error, text string) {
	t.Helper()
	if !errors.Is(err, is) || !regexp.MustCompile(`^engine: lock "[a-z:0-9]+": `+text+`$`).MatchString(err.Error()) {
		t.Errorf("%s: %v\nwant ...: %s", what, err, text)
	}
}

// The machine has numbers of its own for what users and servers name.
func TestLostReason_Numbers_AreThoseOfTheMachine(t *testing.T) {
	t.Parallel()
	for why, want := range map[lock.Loss]LostReason{
		lock.LeaseEnded: LeaseEnded, lock.NotRenewed: NotRenewed, lock.MaxHoldReached: MaxHoldReached,
		lock.RemovedOnServer: RemovedOnServer, lock.KeyOverwritten: KeyOverwritten, lock.EngineClosed: EngineClosed,
	} {
		if LostReason(why) != want {
			t.Errorf("%v is %v to users", want, LostReason(why))
		}
	}
	if lock.Losses != len(reasons) {
		t.Errorf("the machine counts %d reasons, there are %d", lock.Losses, len(reasons))
	}
	for acks, want := range map[lock.Acks]resp.Acks{
		lock.AllReplicas: resp.AllReplicas, lock.MajorityOfReplicas: resp.MajorityOfReplicas, maxReplicas: maxReplicas,
	} {
		if resp.Acks(acks) != want {
			t.Errorf("%d replicas are %d to the servers", acks, want)
		}
	}
}

// timer is a context whose time is over when the test says so.
type timer struct {
	context.Context
	done chan struct{}
}

func (c *timer) Done() <-chan struct{} { return c.done }

func (c *timer) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func newTimer() *timer { return &timer{context.Background(), make(chan struct{})} }

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

func TestLock_HeldElsewhere_SaysHeld(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
	head := m.LockAsync(ctxT(t))
	notified(t, m, lock.HeldElsewhere)
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
func TestLock_BehindAHead_KnowsWhatTheHeadKnows(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
	head := m.LockAsync(ctxT(t))
	notified(t, m, lock.HeldElsewhere)
	tr.net.Pause(faultproxy.All) // nobody learns anything by himself
	defer tr.net.Resume()
	next := waiters(m)
	head.Abandon()
	stopped(t, next, heldElsewhere)
}

func TestLock_HeldHere_SaysHeld(t *testing.T) {
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
	notified(t, m, lock.NoAnswer)
	stopped(t, waiters(m), refused)
}

func TestLock_BehindAReentry_SaysWhatIsInTheWay(t *testing.T) {
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

func TestLock_NoServer_SaysUnavailable(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
	head := m.LockAsync(ctxT(t))
	notified(t, m, lock.HeldElsewhere)
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
func TestLock_SilentServer_DoesNotSayHeld(t *testing.T) {
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
func TestTryLock_NoAnswer_DoesNotSayHeld(t *testing.T) {
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
			notified(t, m, lock.HeldElsewhere)
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
func TestTryLock_BehindOneWithoutAnAnswer_DoesNotSayHeld(t *testing.T) {
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

// areUnanswered gives both up, and has them told that the server did not answer.
func (tr tries) areUnanswered(t *testing.T) {
	t.Helper()
	close(tr.over.done)
	wantReason(t, "the context's time is over", errOf(tr.first.Await(ctxT(t))), silent)
	tr.second.source.(*acquisition).giveUpNow()
	wantReason(t, "CommandTimeout is over", errOf(tr.second.Await(ctxT(t))), silent)
}

func twoTries(m Mutex) tries {
	over := newTimer()
	return tries{over, m.TryLockAsync(over), m.TryLockAsync(context.Background())}
}

// Its lease is over, and whether it was released nobody knows: this process has it no more.
func TestLock_ReleaseGivenUp_IsNotHeldHere(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) { // or the connection is given up, too
		tr, m := newReasons(t)
		h := mustLock(t, m, Lease(time.Second)) // half of CommandTimeout
		tr.net.Pause(faultproxy.All)
		defer tr.net.Resume()
		if err := errOf(h.UnlockAsync().Await(ctxT(t))); !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		stopped(t, waiters(m)[:2], silent)
	})
}

// What was known of a name is forgotten when nobody waits for it.
func TestLock_LastAttempt_DoesNotOutliveItsWaiters(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"), Lease(time.Minute))
	head := m.LockAsync(ctxT(t))
	eventually(t, "it was refused again after it began to listen, and sleeps", func() bool {
		sh := tr.e.table.Shard(m.route)
		sh.Lock()
		defer sh.Unlock()
		r := sh.Locks.Find(m.key.Name)
		v := r.View()
		return v.Attempts == 2 && v.What == lock.NoCommand
	})
	head.Abandon()
	tr.net.Pause(faultproxy.All)
	defer tr.net.Resume()
	stopped(t, waiters(m)[:2], silent)
}

func TestLock_ContextEndedBefore_SaysNothingOfTheLock(t *testing.T) {
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
func TestErrors_TextOfACause_MayUseTheEngine(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	h := mustLock(t, m)
	tr.net.Down()
	defer tr.net.Up()
	h.UnlockAsync()
	notified(t, m, lock.NoAnswer) // there are two things to say
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

func TestErrors_Durations_AreRounded(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		26*time.Second + 999775281: "27s", 9*time.Second + 951234567: "10s", 1234567890: "1.2s", 99876543: "100ms", 1: "1ms",
		time.Hour + 29*time.Minute + 1: "1h29m0s",
	} {
		err := notAcquired("x", &lockerr.Held{TTL: d})
		if text := `engine: lock "x" not acquired: held by another, whose lease ends in ` + want + " unless renewed"; err.Error() != text || err.TTL != d {
			t.Errorf("%v: %v, %v", d, err, err.TTL)
		}
	}
	for _, d := range []time.Duration{-1, 0} {
		if text := notAcquired("x", &lockerr.Held{TTL: d}).Error(); strings.ContainsAny(text, "0123456789") {
			t.Errorf("%v: %s", d, text)
		}
	}
}
