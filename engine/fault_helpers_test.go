package engine

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

var sentinels = map[string]error{
	"ErrInvalid": ErrInvalid, "ErrNotAcquired": ErrNotAcquired, "ErrReentry": ErrReentry, "ErrKindConflict": ErrKindConflict,
	"ErrHeld": ErrHeld, "ErrNotRun": ErrNotRun,
	"ErrWrongType": ErrWrongType, "ErrGrantTooLate": ErrGrantTooLate, "ErrOverloaded": ErrOverloaded,
	"ErrUnavailable": ErrUnavailable, "ErrClosed": ErrClosed, "ErrOutcomeUnknown": ErrOutcomeUnknown,
	"ErrLost": ErrLost, "ErrReleased": ErrReleased, "ErrNotHeld": ErrNotHeld, "ErrPending": ErrPending, "ErrNotAcked": ErrNotAcked,
}

// errorTable is the table of docs/errors.md: the mark of each error and operation.
func errorTable(t *testing.T) (operations []string, marks map[string]map[string]string) {
	t.Helper()
	page, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	marks = make(map[string]map[string]string)
	for line := range strings.Lines(string(page)) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "Open" && words[1] == "Lock":
			operations = words
			continue
		case operations == nil || len(words) != len(operations)+1 || sentinels[words[0]] == nil:
			continue
		}
		row := make(map[string]string)
		for i, mark := range words[1:] {
			row[operations[i]] = mark
		}
		marks[words[0]] = row
	}
	if len(marks) != len(sentinels) {
		t.Errorf("the table has %d rows, there are %d sentinels", len(marks), len(sentinels))
	}
	return operations, marks
}

// provoked checks one cell. A server of its own would cost more than all the rest: a server of tests
// compiles every script for every connection. So the cells share servers, and have databases of their own.
func provoked(t *testing.T, on []*redistest.Server, kind, sentinel, operation string, marks map[string]map[string]string) {
	steady(t, func(t testing.TB) {
		var tr *trouble
		if sentinel == "ErrNotAcked" && operation == "Extend" { // its replicas come and go
			tr = newTroubleOf(t, kind)
		} else {
			tr = newTroubleOn(t, kind, on)
		}
		err := tr.provoke(sentinel, operation)
		if !errors.Is(err, sentinels[sentinel]) {
			t.Fatalf("got: %v", err)
		}
		joined := map[string]error{"n": ErrNotAcquired, "u": ErrOutcomeUnknown}
		for with, other := range joined {
			if want := with == marks[sentinel][operation] || sentinels[sentinel] == other; errors.Is(err, other) != want {
				t.Errorf("joined with %q: %t, want %t: %v", other, !want, want, err)
			}
		}
		for beside, is := range sentinels {
			if errors.Is(err, is) && marks[beside][operation] == "." {
				t.Errorf("it is %s, which the table does not have: %v", beside, err)
			}
		}
		if errors.Is(err, ErrHeld) && errors.Is(err, ErrUnavailable) {
			t.Errorf("held, and nobody could be asked: %v", err)
		}
		if notRun := operation == "Do" && errors.Is(err, ErrNotAcquired); errors.Is(err, ErrNotRun) != notRun {
			t.Errorf("the function was not run: %t, want %t: %v", !notRun, notRun, err)
		}
		if text := err.Error(); strings.Contains(text, "\n") && operation != "Err" {
			t.Errorf("several lines: %q", text)
		}
		var e *NotAcquiredError
		if errors.As(err, &e) != errors.Is(err, ErrNotAcquired) {
			t.Errorf("not a NotAcquiredError: %v", err)
		}
	})
}

// fleeting is a lease that ends within the test.
func fleeting() Option { return Lease(300 * time.Millisecond) }

func (t *trouble) provoke(sentinel, operation string) error {
	t.Helper()
	switch operation {
	case "Lock", "Try", "Async", "Do":
		if err := t.provokeAcquiring(sentinel, operation); err != nil {
			return err
		}
	case "State", "Force", "Ping":
		return t.provokeQuestion(sentinel, operation)
	}
	switch sentinel + " " + operation {
	case "ErrInvalid Open":
		_, err := Open(t.ctx, "http://127.0.0.1")
		return err
	case "ErrUnavailable Open":
		t.net.Blackhole(faultproxy.All)
		defer t.net.Heal()
		_, err := Open(t.soon(), t.through(""))
		return err
	case "ErrInvalid Unlock":
		return t.lock().Unlock(t.none)
	case "ErrInvalid Extend":
		return t.lock().Extend(t.ctx, time.Minute)
	case "ErrInvalid Err":
		return context.Cause(t.lock().Context(t.none))
	case "ErrInvalid Shutdown":
		return t.e.Shutdown(t.none)
	case "ErrInvalid Await":
		_, _, err := AwaitAny[int](t.ctx)
		return err
	case "ErrPending Await":
		t.lock()
		return t.l.async(t.ctx).await(t.soon())

	case "ErrUnavailable Do":
		return t.l.do(t.ctx, func(context.Context, someHold) error { t.down(); return nil }, Lease(time.Second))
	case "ErrOutcomeUnknown Do":
		return t.l.do(t.ctx, func(context.Context, someHold) error { t.down(); return nil })
	case "ErrLost Do":
		return t.l.do(t.ctx, func(_ context.Context, h someHold) error { <-h.Done(); return nil }, fleeting())

	case "ErrUnavailable Unlock":
		h := t.lock(Lease(time.Second))
		t.down()
		return h.Unlock(t.ctx)
	case "ErrClosed Unlock":
		h := t.lock()
		t.down()
		released := h.UnlockAsync()
		t.each(func(p place) { _ = p.e.Close() })
		_, err := released.Await(t.ctx)
		return err
	case "ErrOutcomeUnknown Unlock":
		h := t.lock()
		t.down()
		return h.Unlock(t.soon())
	case "ErrLost Unlock":
		h := t.lock(fleeting())
		<-h.Done()
		return h.Unlock(t.ctx)
	case "ErrNotHeld Unlock":
		h := t.lock()
		t.unlock(h)
		return h.Unlock(t.ctx)

	case "ErrUnavailable Extend", "ErrOutcomeUnknown Extend":
		h := t.lock(Lease(time.Minute))
		t.down()
		if sentinel == "ErrOutcomeUnknown" {
			return h.Extend(t.soon(), time.Hour)
		}
		return h.Extend(t.ctx, time.Hour)
	case "ErrLost Extend":
		h := t.lock(fleeting())
		<-h.Done()
		return h.Extend(t.ctx, time.Hour)
	case "ErrNotAcked Extend":
		t.each(func(p place) { p.s.SetReplicas(1) })
		h := t.lock(Lease(time.Minute), Acked(1))
		t.each(func(p place) { p.s.SetReplicas(0) })
		return h.Extend(t.ctx, time.Hour)
	case "ErrNotHeld Extend":
		h := t.lock(Lease(time.Minute))
		t.unlock(h)
		return h.Extend(t.ctx, time.Hour)

	case "ErrLost Err":
		h := t.lock(fleeting())
		<-h.Done()
		return errors.Join(h.Err(), context.Cause(h.Context(t.ctx)))
	case "ErrReleased Err":
		h := t.lock()
		t.unlock(h)
		return errors.Join(h.Err(), context.Cause(h.Context(t.ctx)))

	case "ErrOutcomeUnknown Close":
		t.lock()
		t.down()
		return t.e.Close()
	case "ErrPending Close":
		return t.inCallback().Close()
	case "ErrPending Shutdown":
		return t.inCallback().Shutdown(t.ctx)
	case "ErrClosed Shutdown":
		t.lock()
		return t.e.Shutdown(t.soon())
	case "ErrOutcomeUnknown Shutdown":
		t.lock()
		t.down()
		return t.e.Shutdown(t.soon())
	}
	t.Fatalf("docs/errors.md says that %s returns %s: provoke it here", operation, sentinel)
	return nil
}

// provokeAcquiring has one of the acquiring operations fail before it has the lock.
func (t *trouble) provokeAcquiring(sentinel, operation string) error {
	t.Helper()
	acquire := func(ctx context.Context, l locking, opts ...Option) error {
		var err error
		switch operation {
		case "Lock":
			_, err = l.lock(ctx, opts...)
		case "Try":
			_, err = l.try(ctx, opts...)
		case "Async":
			err = l.async(ctx, opts...).await(t.ctx)
		case "Do":
			err = l.do(ctx, func(context.Context, someHold) error { return nil }, opts...)
		}
		return err
	}
	switch sentinel {
	case "ErrInvalid":
		return acquire(t.ctx, t.named(""))
	case "ErrNotAcquired", "ErrHeld":
		t.each(func(p place) {
			mustLock(t, open(t, p.url).Mutex("x"))
			ahead := p.m.LockAsync(t.ctx)
			t.Cleanup(func() { ahead.Abandon() })
			notified(t, p.m, lock.HeldElsewhere)
		})
		if operation == "Try" { // which goes by its own try
			return acquire(t.ctx, t.l)
		}
		return acquire(t.soon(), t.l)
	case "ErrNotRun":
		return acquire(t.soon(), t.named(""))
	case "ErrReentry":
		return acquire(t.lock().Context(t.ctx), t.l, NonReentrant())
	case "ErrKindConflict":
		t.each(func(p place) { mustLock(t, p.e.FairMutex("x")) })
		return acquire(t.ctx, t.l)
	case "ErrWrongType":
		t.each(func(p place) { p.set(t, "x", "of another library") })
		return acquire(t.ctx, t.l)
	case "ErrNotAcked":
		return acquire(t.ctx, t.l, Acked(AllReplicas))
	case "ErrGrantTooLate":
		t.each(func(p place) { p.net.Delay(faultproxy.All, 40*time.Millisecond, 40*time.Millisecond) })
		return acquire(t.ctx, t.l, Lease(50*time.Millisecond))
	case "ErrClosed":
		t.each(func(p place) { _ = p.e.Close() })
		return acquire(t.ctx, t.l)
	case "ErrReleased":
		h := t.lock()
		under := h.Context(t.ctx)
		t.unlock(h)
		return acquire(under, t.l)
	case "ErrLost":
		if operation == "Do" {
			return nil // what it returns after its function has run is in provoke
		}
		h := t.lock(fleeting())
		under := h.Context(t.ctx)
		<-under.Done()
		return acquire(under, t.l)
	case "ErrUnavailable":
		switch operation {
		case "Lock":
			t.down()
			return acquire(t.ctx, t.l, Wait(50*time.Millisecond))
		case "Try":
			t.down()
			return acquire(t.ctx, t.l)
		case "Async":
			t.down()
			return t.l.tryAsync(t.ctx).await(t.ctx)
		}
	case "ErrOverloaded":
		full := make(map[*Engine]*Engine)
		t.each(func(p place) {
			full[p.e] = open(t, p.through(""), func(c *Config) { c.MaxInFlight = 1 })
			p.net.Pause(faultproxy.All)
		})
		defer t.each(func(p place) { p.net.Resume() })
		t.each(func(p place) { full[p.e].Mutex("a").LockAsync(t.ctx) })
		return t.of("b", func(p place) *Engine { return full[p.e] }).async(t.ctx).await(t.soon())
	}
	return nil
}

// provokeQuestion has one of the operations fail that stand outside of holds.
func (t *trouble) provokeQuestion(sentinel, operation string) error {
	t.Helper()
	ask := func(m Mutex) error {
		var err error
		switch operation {
		case "State":
			_, err = m.State(t.ctx)
		case "Force":
			_, err = m.ForceUnlock(t.ctx)
		case "Ping":
			err = t.e.Ping(t.ctx)
		}
		return err
	}
	switch sentinel {
	case "ErrInvalid":
		if operation == "Ping" {
			return t.e.Ping(t.none)
		}
		return ask(Mutex{})
	case "ErrWrongType":
		t.set(t, "x", "of another library")
	case "ErrUnavailable":
		t.down()
	case "ErrClosed":
		_ = t.e.Close()
	case "ErrOutcomeUnknown":
		t.net.Pause(faultproxy.All)
		defer t.net.Resume()
	}
	return ask(t.m)
}

// refuse takes the server away and waits until the engine has found that out.
func (t *trouble) refuse(m Mutex) {
	t.Helper()
	t.net.Down()
	eventually(t, "it cannot be reached", func() bool { return hasText(t.e.table.Client.LaneError(m.route), "refused") })
}

// trouble is a lock: a Mutex, several of one place, or a RedLock of three places. The place of
// its own is the first.
type trouble struct {
	testing.TB
	place
	kind   string
	places []place
	l      locking
	ctx    context.Context

	none context.Context // nil
}

// named is the lock of another name.
func (t *trouble) named(name string) locking { return t.of(name, func(p place) *Engine { return p.e }) }

// of is a lock of other engines.
func (t *trouble) of(name string, engine func(place) *Engine) locking {
	var locks []Mutex
	for _, p := range t.places {
		locks = append(locks, engine(p).Mutex(name))
	}
	switch t.kind {
	case "Multi":
		return lockingOf(Multi(append(locks, engine(t.place).Mutex("beside "+name))...))
	case "RedLock":
		return lockingOf(RedLock(locks...))
	}
	return lockingOf(locks[0])
}

// each has something happen at all the places.
func (t *trouble) each(do func(p place)) {
	for _, p := range t.places {
		do(p)
	}
}

// down takes the network away and waits until the engine has noticed. The proxy goes
// on to listen: its port must not become another test's meanwhile.
func (t *trouble) down() {
	t.Helper()
	t.each(func(p place) {
		p.net.Blackhole(faultproxy.All)
		p.net.Cut(faultproxy.All)
		t.Cleanup(p.net.Heal) // before the engine's Close, which would wait for it
	})
	t.each(func(p place) {
		eventually(t, "the engine knows that the network is down", func() bool { return !connected(p.e).Up(resp.RoleLane, 0) })
	})
}

// soon is a context that ends in a moment.
func (t *trouble) soon() context.Context {
	ctx, cancel := context.WithTimeout(t.ctx, 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func (t *trouble) lock(opts ...Option) someHold {
	t.Helper()
	h, err := t.l.lock(t.ctx, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (t *trouble) unlock(h someHold) {
	t.Helper()
	if err := h.Unlock(t.ctx); err != nil {
		t.Fatal(err)
	}
}

// inCallback is an engine with a callback that runs until the test is over.
func (t *trouble) inCallback() *Engine {
	e := open(t, t.through("?close_timeout=100ms"))
	running, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over) })
	t.lock() // by the other engine: Shutdown would wait for a hold of this one
	e.Mutex("x").TryLockAsync(t.ctx).OnComplete(func(*Hold, error) { close(running); <-over })
	receive(t, running)
	return e
}

// onResult waits until the name's latest try has been told something.
func notified(t testing.TB, m Mutex, what lock.LastAttempt) {
	t.Helper()
	sh := m.home.table.Shard(m.route)
	eventually(t, "the latest try has been told", func() bool {
		sh.Lock()
		defer sh.Unlock()
		r := sh.Locks.Find(m.key.Name)
		return r != nil && r.View().LastAttempt == what
	})
}

// trouble is in trouble_test.go: a server, a network, an engine.
func newReasons(t testing.TB) (*trouble, Mutex) {
	tr := newTrouble(t)
	return tr, tr.e.Mutex("orders:42")
}

// place is an engine on a server, and a network between that does what we want.
type place struct {
	s   *embedded.Server // nil of newTroubleOn
	url string           // without the network
	set func(t testing.TB, key, value string)
	net *faultproxy.Proxy
	db  string // "", or "/" and its number
	e   *Engine
	m   Mutex
}

// through is the URL that leads through the network.
func (p *place) through(query string) string { return "redis://" + p.net.Addr() + p.db + query }

func newTrouble(t testing.TB) *trouble { return newTroubleOf(t, "Mutex") }

func newTroubleOf(t testing.TB, kind string) *trouble {
	t.Helper()
	var places []place
	for range placesOf[kind] {
		s, err := embedded.Start("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		places = append(places, place{s: s, url: s.URL(), net: faultproxy.New(t, "tcp", s.Addr())})
	}
	return newTroubleAt(t, kind, places)
}

// placesOf is how many servers a kind of lock needs.
var placesOf = map[string]int{"Mutex": 1, "Multi": 1, "RedLock": 3}

// databases numbers those of the servers that newTroubleOn shares.
var databases atomic.Int64

// manyDatabases is the line of a redis.conf that has enough of them.
const manyDatabases = "databases 10000"

// newTroubleOn is newTroubleOf in a fresh database of each server.
func newTroubleOn(t testing.TB, kind string, on []*redistest.Server) *trouble {
	t.Helper()
	db := strconv.FormatInt(databases.Add(1)%10_000, 10)
	var places []place
	for _, s := range on[:placesOf[kind]] {
		set := func(t testing.TB, key, value string) {
			t.Helper()
			if _, err := s.Process.Do("EVAL", "redis.call('SELECT', ARGV[1]) return redis.call('SET', KEYS[1], ARGV[2])", "1", key, db, value); err != nil {
				t.Fatal(err)
			}
		}
		places = append(places, place{url: s.URL() + "/" + db, set: set, net: faultproxy.New(t, "tcp", s.Addr()), db: "/" + db})
	}
	return newTroubleAt(t, kind, places)
}

func newTroubleAt(t testing.TB, kind string, places []place) *trouble {
	t.Helper()
	tr := &trouble{TB: t, kind: kind, ctx: ctxT(t), places: places}
	for i := range tr.places {
		p := &tr.places[i]
		p.e = open(t, p.through("?command_timeout=2s&close_timeout=2s"))
		p.m = p.e.Mutex("x")
	}
	tr.place = tr.places[0]
	tr.l = tr.named("x")
	return tr
}

// someHold is what a Hold, a Hold and a Hold have in common.
type someHold interface {
	Unlock(ctx context.Context) error
	UnlockAsync() *Future[struct{}]
	Extend(ctx context.Context, d time.Duration) error
	Context(parent context.Context) context.Context
	Done() <-chan struct{}
	Err() error
}

// locking is a Mutex, a MultiLock or a QuorumLock, for tests of what holds for all of them.
type locking struct {
	lock, try       func(ctx context.Context, opts ...Option) (someHold, error)
	async, tryAsync func(ctx context.Context, opts ...Option) locked
	do              func(ctx context.Context, fn func(context.Context, someHold) error, opts ...Option) error
}

// locked is the future of a locking.
type locked struct {
	await   func(ctx context.Context) error
	abandon func()
}

func lockingOf[H someHold](l interface {
	Lock(ctx context.Context, opts ...Option) (H, error)
	TryLock(ctx context.Context, opts ...Option) (H, error)
	LockAsync(ctx context.Context, opts ...Option) *Future[H]
	TryLockAsync(ctx context.Context, opts ...Option) *Future[H]
	Do(ctx context.Context, fn func(context.Context, H) error, opts ...Option) error
}) locking {
	future := func(f *Future[H]) locked {
		return locked{func(ctx context.Context) error { _, err := f.Await(ctx); return err }, f.Abandon}
	}
	return locking{
		lock:     func(ctx context.Context, opts ...Option) (someHold, error) { return l.Lock(ctx, opts...) },
		try:      func(ctx context.Context, opts ...Option) (someHold, error) { return l.TryLock(ctx, opts...) },
		async:    func(ctx context.Context, opts ...Option) locked { return future(l.LockAsync(ctx, opts...)) },
		tryAsync: func(ctx context.Context, opts ...Option) locked { return future(l.TryLockAsync(ctx, opts...)) },
		do: func(ctx context.Context, fn func(context.Context, someHold) error, opts ...Option) error {
			return l.Do(ctx, func(ctx context.Context, h H) error { return fn(ctx, h) }, opts...)
		},
	}
}
