package redisson

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// An engine that lives gives a hold back when its time is over here, and that is sooner than on the
// server. So the end of a lease on the server shows only with a holder that has gone.

// mayGo opens an engine that has gone while its network is down, as far as the server can see: then
// it renews nothing, and gives nothing back. It speaks to a node of a cluster as to a lone server: its
// messages are not sharded, and those who wait there do not hear them.
func mayGo(t testing.TB, s *redistest.Server, change ...func(*engine.Config)) (*engine.Engine, *faultproxy.Proxy) {
	t.Helper()
	network := faultproxy.New(t, "tcp", s.Addr())
	hurry := func(c *engine.Config) { c.CloseTimeout = 100 * time.Millisecond }
	return testkit.Open(t, "redis://"+network.Addr(), append(change, hurry)...), network
}

// term is a lease as a test sees it, which has no clock of the server.
type term struct {
	lease time.Duration
	since time.Time // it began then, or somewhat later
	used  cputime.Mark
}

func begin(lease time.Duration) term { return term{lease, time.Now(), cputime.Now()} }

// notBefore fails the test if who is in now should have been kept out still.
func (x term) notBefore(t testing.TB, who string) {
	t.Helper()
	const clocks = 10 * time.Millisecond // those of this process and of the server differ so much
	if d := time.Since(x.since); d < x.lease-clocks {
		t.Errorf("%s: after %v already, and the time is %v", who, d, x.lease)
	}
}

// notLong fails the test if who is in now should have been so long before.
func (x term) notLong(t testing.TB, who string) {
	t.Helper()
	const late = time.Second
	if d := x.used.Elapsed(); d > x.lease+late {
		t.Errorf("%s: only after %v, and the time is %v", who, d, x.lease)
	}
}

// ended fails the test unless it has just ended: who is in now is in because the server ended it.
func (x term) ended(t testing.TB, who string) {
	t.Helper()
	x.notBefore(t, who)
	x.notLong(t, who)
}

// testExpire
func TestLeaseEndsAndTheWaiterHasTheLock(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e, network := mayGo(t, s)
			other := testkit.Open(t, s.URL())
			lease := begin(time.Second)
			old := testkit.MustLock(t, lock(e), engine.Lease(lease.lease))
			network.Down()
			next := testkit.MustLock(t, lock(other))
			lease.ended(t, "the waiter")
			if err := old.Err(); !errors.Is(err, engine.ErrLost) {
				t.Errorf("the old hold still is one: %v", err)
			}
			network.Up()
			testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("another"))) // it is back, and gives back what it has not
			if err := old.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
				t.Errorf("Unlock of the old hold: %v", err)
			}
			if st := state(t, lock(other)); !st.Mine {
				t.Errorf("the new hold did not outlive that: %+v", st)
			}
			testkit.MustUnlock(t, next)
			testkit.Clean(t, s, e, other)
		})
	})
}

// mortal are the locks of a process that is killed. Each is named as its kind.
var mortal = map[string]locker{
	"Mutex":     func(e *engine.Engine) engine.Mutex { return e.Mutex("Mutex") },
	"SpinMutex": func(e *engine.Engine) engine.Mutex { return e.SpinMutex("SpinMutex") },
	"FairMutex": func(e *engine.Engine) engine.Mutex { return e.FairMutex("FairMutex") },
	"Reader":    func(e *engine.Engine) engine.Mutex { return e.RWMutex("Reader").Reader() },
	"Writer":    func(e *engine.Engine) engine.Mutex { return e.RWMutex("Writer").Writer() },
}

// testAutoExpire
func TestLockOfAKilledProcessExpires(t *testing.T) {
	const lease = 2 * time.Second
	if args := testkit.PeerArgs(); len(args) == 1 {
		e := testkit.Open(t, args[0], testkit.LeaseOf(lease))
		for _, lock := range mortal {
			testkit.MustLock(t, lock(e))
		}
		<-testkit.Ctx(t).Done() // until it is killed
		t.Fatal("not killed")
	}
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			p := testkit.StartPeer(t, s.URL())
			held := func() bool {
				for kind := range mortal {
					if testkit.PTTL(t, s, kind) <= 0 {
						return false
					}
				}
				return true
			}
			testkit.Eventually(t, "the process holds its locks", held)
			renewed := time.Now()
			testkit.Eventually(t, "two leases pass", func() bool {
				if !held() {
					t.Fatal("a lock was lost while its process lived")
				}
				return time.Since(renewed) > 2*lease
			})
			e := testkit.Open(t, s.URL())
			left := make(map[string]term)
			for kind := range mortal {
				x := begin(0)
				x.lease = testkit.PTTL(t, s, kind)
				left[kind] = x
			}
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			dead := begin(lease)
			var all sync.WaitGroup
			for kind, lock := range mortal {
				if kind == "Reader" { // which keeps writers out only
					lock = func(e *engine.Engine) engine.Mutex { return e.RWMutex("Reader").Writer() }
				}
				all.Go(func() {
					h, err := lock(e).Lock(testkit.Ctx(t))
					if err != nil {
						t.Errorf("%s: %v", kind, err)
						return
					}
					left[kind].notBefore(t, kind)
					dead.notLong(t, kind)
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Errorf("%s: %v", kind, err)
					}
				})
			}
			all.Wait()
			testkit.Clean(t, s, e)
		})
	})
}

// testFirstThreadDeathTimeoutDrift: nobody hears for a waiter that was killed. It has three seconds
// when it is its turn, and those behind it are waited for as before. A cluster without sharded
// channels does not know who hears (docs/fair.md): there it has all of its time.
func TestKilledWaiterOfAFairLockIsPassedOver(t *testing.T) {
	const room = 10 * time.Second
	of := func(c *engine.Config) { c.FairWaitTimeout, c.Lease = room, 5*time.Second }
	if args := testkit.PeerArgs(); len(args) == 1 {
		_, err := testkit.Open(t, args[0], of).FairMutex("F").Lock(testkit.Ctx(t))
		t.Fatalf("not killed: %v", err)
	}
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e, other := testkit.Open(t, s.URL(), of), testkit.Open(t, s.URL(), of)
			h := testkit.MustLock(t, e.FairMutex("F"))
			p := testkit.StartPeer(t, s.URL())
			fairQueued(t, s, 1)
			waits := line(t, s, 2, nil, other, e)
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			dead := javaChannel("F") + ":" + s.Do("LINDEX", fairQueue, "0").(string)
			testkit.Eventually(t, "nobody hears for it", func() bool { return subscribers(s, dead) == 0 })
			scoresOf(t, s, room)
			turn := begin(3 * time.Second)
			if s.InCluster() && !s.Sharded() {
				turn = begin(waitedFor(t, s, 0))
			}
			testkit.MustUnlock(t, h)
			for i, f := range waits {
				h, err := f.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				turn.ended(t, "who is behind it")
				fairQueued(t, s, len(waits)-1-i)
				scoresOf(t, s, room)
				testkit.MustUnlock(t, h)
			}
			testkit.Clean(t, s, e, other)
		})
	})
}
