package engine

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/resp"
)

// place is an engine on a server, and a network between that does what we want.
type place struct {
	s   *embedded.Server
	net *faultproxy.Proxy
	e   *Engine
	m   Mutex
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

func newTrouble(t testing.TB) *trouble { return newTroubleOf(t, "Mutex") }

func newTroubleOf(t testing.TB, kind string) *trouble {
	t.Helper()
	tr := &trouble{TB: t, kind: kind, ctx: ctxT(t)}
	for range map[string]int{"Mutex": 1, "Multi": 1, "RedLock": 3}[kind] {
		s, err := embedded.Start("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		net := faultproxy.New(t, "tcp", s.Addr())
		e := open(t, "redis://"+net.Addr()+"?command_timeout=2s&close_timeout=2s")
		tr.places = append(tr.places, place{s, net, e, e.Mutex("x")})
	}
	tr.place = tr.places[0]
	tr.l = tr.named("x")
	return tr
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
	e := open(t, "redis://"+t.net.Addr()+"?close_timeout=100ms")
	running, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over) })
	t.lock() // by the other engine: Shutdown would wait for a hold of this one
	e.Mutex("x").TryLockAsync(t.ctx).OnComplete(func(*Hold, error) { close(running); <-over })
	receive(t, running)
	return e
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
