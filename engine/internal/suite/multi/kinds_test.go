package multi

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// half makes a lock of one kind.
type half func(e *engine.Engine, name string) engine.Mutex

// kinds are all kinds of lock that can be taken with others as one. Readers exclude only writers.
var kinds = map[string]struct{ write, read half }{
	"mutexes":        {write: (*engine.Engine).Mutex},
	"spin mutexes":   {write: func(e *engine.Engine, name string) engine.Mutex { return e.SpinMutex(name) }},
	"fair mutexes":   {write: func(e *engine.Engine, name string) engine.Mutex { return e.FairMutex(name) }},
	"fenced mutexes": {write: func(e *engine.Engine, name string) engine.Mutex { return e.FencedMutex(name) }},
	"read-write mutexes": {
		write: func(e *engine.Engine, name string) engine.Mutex { return e.RWMutex(name).Writer() },
		read:  func(e *engine.Engine, name string) engine.Mutex { return e.RWMutex(name).Reader() },
	},
}

// joined is what the hold of a MultiLock and that of a RedLock have in common.
type joined interface {
	Done() <-chan struct{}
	Err() error
	Unlock(ctx context.Context) error
}

// taker takes several locks as one.
type taker struct {
	lock, try func(ctx context.Context, opts ...engine.Option) (joined, error)
	begin     func(ctx context.Context) (abandon func())
}

func takerOf[H joined](l interface {
	Lock(ctx context.Context, opts ...engine.Option) (H, error)
	TryLock(ctx context.Context, opts ...engine.Option) (H, error)
	LockAsync(ctx context.Context, opts ...engine.Option) *engine.Future[H]
}) taker {
	return taker{
		lock:  func(ctx context.Context, opts ...engine.Option) (joined, error) { return l.Lock(ctx, opts...) },
		try:   func(ctx context.Context, opts ...engine.Option) (joined, error) { return l.TryLock(ctx, opts...) },
		begin: func(ctx context.Context) func() { return l.LockAsync(ctx).Abandon },
	}
}

// joins are the two ways to take locks of several servers as one.
var joins = map[string]struct {
	servers int
	names   []string // on each of them
	of      func(locks ...engine.Mutex) taker
}{
	"Multi":   {2, []string{"x", "y"}, func(locks ...engine.Mutex) taker { return takerOf(engine.Multi(locks...)) }},
	"RedLock": {3, []string{"x"}, func(locks ...engine.Mutex) taker { return takerOf(engine.RedLock(locks...)) }},
}

// ground is some servers, and how several processes take one kind of lock there as one.
type ground struct {
	servers     []*redistest.Server
	names       []string
	of          func(locks ...engine.Mutex) taker
	write, read half // read is nil if all exclude each other
	engines     []*engine.Engine
}

func newGround(t *testing.T, join, kind string) *ground {
	j, k := joins[join], kinds[kind]
	g := &ground{names: j.names, of: j.of, write: k.write, read: k.read}
	for range j.servers {
		g.servers = append(g.servers, testkit.Server(t))
	}
	return g
}

// onGrounds runs a test of each kind of lock, taken as one by each of these ways.
func onGrounds(t *testing.T, test func(t *testing.T, g *ground), ways ...string) {
	for _, join := range ways {
		for kind := range kinds {
			t.Run(join+" of "+kind, func(t *testing.T) {
				t.Parallel()
				test(t, newGround(t, join, kind))
			})
		}
	}
}

// halves are those of the kind that a process may take.
func (g *ground) halves() []half {
	if g.read == nil {
		return []half{g.write}
	}
	return []half{g.write, g.read}
}

// open returns the engines of another process, one for each server.
func (g *ground) open(t *testing.T, change ...func(*engine.Config)) voters {
	var v voters
	for _, s := range g.servers {
		v = append(v, testkit.Open(t, s.URL(), change...))
	}
	g.engines = append(g.engines, v...)
	return v
}

// taker takes the locks of one process.
func (g *ground) taker(v voters, of half) taker {
	var locks []engine.Mutex
	for _, e := range v {
		for _, name := range g.names {
			locks = append(locks, of(e, name))
		}
	}
	return g.of(locks...)
}

// must takes the locks or fails the test.
func (g *ground) must(t *testing.T, v voters, of half) joined {
	t.Helper()
	h, err := g.taker(v, of).lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// clean fails the test if anything is left on a server, but for the counters of tokens.
func (g *ground) clean(t *testing.T) {
	t.Helper()
	for _, s := range g.servers {
		for _, name := range g.names {
			s.Do("DEL", "redisson_lock_token:{"+name+"}")
		}
		testkit.Clean(t, s, g.engines...)
	}
}

// Three processes contend, with several goroutines each, and some give up while they wait. Nobody is
// beside a writer, everybody gets the locks in the end, and no queue is left on the servers.
func TestEveryKindOfLockExcludesWhenItIsTakenAsOneOfMany(t *testing.T) {
	t.Parallel()
	onGrounds(t, func(t *testing.T, g *ground) {
		const processes, each, rounds = 3, 2, 20
		var readers, writers atomic.Int32
		sections, written := 0, 0 // unguarded: the race detector looks, too
		work := func(writes bool) {
			before := written
			if writes {
				if r, w := readers.Load(), writers.Add(1); w != 1 || r != 0 {
					t.Errorf("a writer is beside %d writers and %d readers", w-1, r)
				}
				defer writers.Add(-1)
				sections++
			} else {
				readers.Add(1)
				if w := writers.Load(); w != 0 {
					t.Errorf("a reader is beside %d writers", w)
				}
				defer readers.Add(-1)
			}
			g.servers[0].Do("PING") // so that others would have the time to come in
			if written != before {
				t.Error("somebody has written meanwhile")
			}
			if writes {
				written = before + 1
			}
		}
		var wg sync.WaitGroup
		for process := range processes {
			v := g.open(t)
			if process%2 == 1 { // the order in which they are given does not matter
				slices.Reverse(v)
			}
			for i := range each {
				rng := rand.New(rand.NewPCG(uint64(process), uint64(i)))
				wg.Go(func() {
					for round := range rounds {
						of, writes := g.write, true
						if g.read != nil && round%2 == 1 {
							of, writes = g.read, false
						}
						l := g.taker(v, of)
						switch impatience := time.Duration(1+rng.IntN(20)) * time.Millisecond; rng.IntN(6) {
						case 0:
							l.begin(testkit.Ctx(t))()
						case 1:
							ctx, cancel := context.WithTimeout(testkit.Ctx(t), impatience)
							giveUp(t, l.lock, ctx)
							cancel()
						case 2:
							giveUp(t, l.lock, testkit.Ctx(t), engine.Wait(impatience))
						case 3:
							giveUp(t, l.try, testkit.Ctx(t))
						}
						h, err := l.lock(testkit.Within(t, 3*testkit.Limit)) // nobody is fair
						if err != nil {
							t.Error(err)
							return
						}
						work(writes)
						if err := h.Unlock(testkit.Ctx(t)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		if written != sections {
			t.Errorf("%d writers, and %d were not overwritten", sections, written)
		}
		g.clean(t)
	}, "Multi", "RedLock")
}

// giveUp is somebody who perhaps does not get the locks.
func giveUp(t *testing.T, lock func(context.Context, ...engine.Option) (joined, error), ctx context.Context, opts ...engine.Option) {
	h, err := lock(ctx, opts...)
	if err == nil {
		err = h.Unlock(testkit.Ctx(t))
	} else if errors.Is(err, engine.ErrNotAcquired) {
		return
	}
	if err != nil {
		t.Error(err)
	}
}

// Readers are beside each other, and a writer that waits for them gets the locks after the last.
func TestReadersOfManyLocksAreBesideEachOther(t *testing.T) {
	t.Parallel()
	for join := range joins {
		t.Run(join, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, join, "read-write mutexes")
			a, b := g.open(t), g.open(t)
			refused := func(what string, of half) {
				t.Helper()
				if _, err := g.taker(a, of).try(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
					t.Errorf("%s: %v", what, err)
				}
			}
			one, other := g.must(t, a, g.read), g.must(t, b, g.read)
			refused("a writer beside two readers", g.write)
			unlock(t, one)
			refused("a writer beside a reader", g.write)
			var w joined
			granted := testkit.Background(func() (err error) {
				w, err = g.taker(a, g.write).lock(testkit.Ctx(t))
				return err
			})
			testkit.Eventually(t, "it waits", func() bool { return slices.ContainsFunc(a, waits) })
			unlock(t, other)
			if err := testkit.Receive(t, granted); err != nil {
				t.Fatal(err)
			}
			if _, err := g.taker(b, g.read).try(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
				t.Errorf("a reader beside a writer: %v", err)
			}
			unlock(t, w)
			g.clean(t)
		})
	}
}

// seldomRenewed is a process that finds out what it has lost when it is made to renew.
func (g *ground) seldomRenewed(t *testing.T) voters {
	return g.open(t, testkit.LeaseOf(10*time.Minute))
}

// take lets strangers have a lock that is held, and whose holder need not know yet.
func (g *ground) take(t *testing.T, of half, by ...*engine.Engine) (strangers []*engine.Hold) {
	t.Helper()
	var from []string
	var next []*engine.Future[*engine.Hold]
	for _, e := range by {
		held, err := of(e, "x").State(testkit.Ctx(t))
		if err != nil || len(held.Holders) != 1 {
			t.Fatal(held, err)
		}
		from, next = append(from, held.Holders[0].ID), append(next, g.write(e, "x").LockAsync(testkit.Ctx(t)))
		testkit.Eventually(t, "the stranger waits", func() bool { return waits(e) })
	}
	for i, e := range by { // perhaps it was given back, because the one before is missing
		if _, err := of(e, "x").ForceUnlock(testkit.Ctx(t), engine.IfHolder(from[i])); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range next {
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, h)
	}
	return strangers
}

func waits(e *engine.Engine) bool { return e.Stats().Waiting > 0 }

func TestLossOfOneLockOfAnyKindEndsAMultiHold(t *testing.T) {
	t.Parallel()
	onGrounds(t, func(t *testing.T, g *ground) {
		a, b := g.seldomRenewed(t), g.open(t)
		for _, of := range g.halves() {
			h := g.must(t, a, of)
			stranger := g.take(t, of, b[1])[0]
			testkit.RenewUntil(t, h.Done(), a[1])
			testkit.WantLost(t, "Err", h.Err(), engine.RemovedOnServer)
			if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
			if _, err := g.taker(b, g.write).try(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
				t.Errorf("beside the stranger: %v", err)
			}
			testkit.MustUnlock(t, stranger)
			unlock(t, g.must(t, b, g.write)) // the others were given back
			g.clean(t)
		}
	}, "Multi")
}

// A majority is enough. The lock is taken again where it was lost, at the first renewal at which that is
// possible.
func TestARedLockOfAnyKindOutlivesTheLossOfOneServer(t *testing.T) {
	t.Parallel()
	onGrounds(t, func(t *testing.T, g *ground) {
		a, b := g.open(t, testkit.LeaseOf(9*time.Second)), g.open(t)
		for _, of := range g.halves() {
			h := g.must(t, a, of).(*engine.Hold)
			at := func(n int) {
				t.Helper()
				testkit.Eventually(t, "it is held at as many servers as it should be", func() bool { return len(h.Servers()) == n })
			}
			at(3)
			stranger := g.take(t, of, b[0])[0]
			testkit.Eventually(t, "that is noticed", func() bool {
				testkit.RenewAll(a[0]) // again, if one was out that the server had answered before
				return len(h.Servers()) == 2
			})
			if h.Err() != nil {
				t.Fatalf("with a majority: %v", h.Err())
			}
			if _, err := g.taker(b, g.write).try(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
				t.Errorf("beside a majority: %v", err)
			}
			testkit.MustUnlock(t, stranger)
			at(3)

			strangers := g.take(t, of, b[1], b[2])
			testkit.RenewUntil(t, h.Done(), a[1], a[2])
			testkit.WantLost(t, "Err", h.Err(), engine.RemovedOnServer)
			if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
			for _, one := range strangers {
				testkit.MustUnlock(t, one)
			}
			unlock(t, g.must(t, b, g.write))
			g.clean(t)
		}
	}, "RedLock")
}

// A Hold has no token, but each of its locks has: it is that of a FencedMutex inside.
func TestAFencedMutexInsideAMultiHoldHasItsToken(t *testing.T) {
	t.Parallel()
	g := newGround(t, "Multi", "fenced mutexes")
	a, b := g.open(t), g.open(t)
	var last int64
	for _, v := range []voters{a, b, a} {
		h := g.must(t, v, g.write)
		inside, err := v[1].FencedMutex("y").Lock(h.(*engine.Hold).Context(testkit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		if inside.Token() <= last {
			t.Errorf("token %d after %d", inside.Token(), last)
		}
		last = inside.Token()
		testkit.MustUnlock(t, inside)
		unlock(t, h)
	}
	g.clean(t)
}

func unlock(t *testing.T, h joined) {
	t.Helper()
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
}
