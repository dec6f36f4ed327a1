package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// stayApart waits while the keys of a slot are apart: for two or three leases, or for as long as
// PAWL_APART says. .ci/full has a minute.
func stayApart(t testing.TB) {
	t.Helper()
	long := 6 * time.Second
	if s := os.Getenv("PAWL_APART"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal("PAWL_APART: ", err)
		}
		long = d
	}
	for began := time.Now(); time.Since(began) < long; {
		time.Sleep(10 * time.Millisecond) // the time itself is wanted: the holds must outlive their leases
	}
}

// wantPending fails the test unless a future waits still.
func wantPending[T any](t testing.TB, what string, f *engine.Future[T]) {
	t.Helper()
	if _, err := f.Result(); !errors.Is(err, engine.ErrPending) {
		t.Errorf("%s: %v", what, err)
	}
}

// movedAway is a cluster, a lock that one engine holds and another waits for, and the
// migration of its slot, up to where the key is at its new node and the slot is not.
type movedAway struct {
	at       *testkit.Site
	cluster  *redistest.Cluster
	slot     int
	from, to *redistest.Server
	hold     *engine.Hold
	waits    *engine.Future[*engine.Hold]
	waiter   *engine.Engine
}

func moveAway(t *testing.T, asleepFirst bool) *movedAway {
	t.Helper()
	m := &movedAway{cluster: redistest.StartCluster(t, false, redistest.Needs(redistest.ShardedChannels))}
	m.at = testkit.Clustered(m.cluster)
	a := m.at.Open(t)
	m.waiter = m.at.Open(t)
	if !testkit.Client(m.waiter).Sharded() {
		t.Fatal("the cluster has sharded messages, and they are not used")
	}
	m.slot = m.cluster.Slot("x")
	m.from = m.cluster.AwaitOwner(m.slot)
	for _, s := range m.cluster.Primaries() {
		if s != m.from {
			m.to = s
		}
	}
	m.hold = testkit.MustLock(t, a.Mutex("x"), engine.Lease(time.Hour))
	wait := func() {
		m.waits = m.waiter.Mutex("x").LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "it listens", func() bool { return testkit.Client(m.waiter).Stats().ChannelsConfirmed == 1 })
	}
	if asleepFirst {
		wait()
	}
	m.cluster.BeginMove(m.slot, m.from, m.to)
	m.cluster.MoveKeys(m.slot, m.from, m.to)
	if !asleepFirst {
		wait()
	}
	return m
}

func (m *movedAway) granted(t *testing.T, within time.Duration) {
	t.Helper()
	start := cputime.Now()
	h, err := m.waits.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := start.Elapsed(); d > within {
		t.Errorf("granted after %v", d)
	}
	testkit.MustUnlock(t, h)
}

// The lease is an hour, and no message reaches anybody while the slot is open.
func TestHeadOfAMovingSlotPolls(t *testing.T) {
	t.Parallel()
	m := moveAway(t, false)
	testkit.MustUnlock(t, m.hold)
	m.granted(t, time.Second)
	m.cluster.EndMove(m.slot, m.from, m.to)
	m.at.Clean(t)
}

func TestHeadThatSleptBeforeItsSlotMovedTriesWhenTheMoveEnds(t *testing.T) {
	t.Parallel()
	m := moveAway(t, true)
	testkit.MustUnlock(t, m.hold)
	m.cluster.EndMove(m.slot, m.from, m.to)
	m.granted(t, 4*time.Second)
	m.at.Clean(t)
}

func TestHeadThatSleptBeforeItsSlotMovedTriesInAnyCase(t *testing.T) {
	t.Parallel()
	m := moveAway(t, true)
	testkit.MustUnlock(t, m.hold)
	m.granted(t, lock.LongestSleepMissed+2*time.Second)
	m.cluster.EndMove(m.slot, m.from, m.to)
	m.at.Clean(t)
}

// ASK leads to a node that nobody can reach. The one that said so must not be asked as
// fast as it answers.
func TestAskToANodeThatIsGoneIsNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	host, port, _ := net.SplitHostPort(n.Addr())
	n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Raw(fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)))
	script := fakenode.Is("EVALSHA")
	n.On(script, fakenode.Error("ASK 5 127.0.0.1:1"))
	e := testkit.Open(t, "redis+cluster://"+n.Addr()+"?sharded_pubsub=off")
	ctx, cancel := context.WithCancel(testkit.Ctx(t))
	start := time.Now()
	f := e.Mutex("x").LockAsync(ctx)
	n.WaitFor(8, script)
	if d := time.Since(start); d < 300*time.Millisecond {
		t.Errorf("eight times within %v", d)
	}
	cancel()
	if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
		t.Error(err)
	}
}

// The name of a standalone server leads to another one by now, and the connections to
// the old one, a replica, live on. This process only renews.
func TestQuietHolderFollowsANameThatMoves(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		r := redistest.StartReplicated(t, 1)
		a, b := r.Servers()[0], r.Servers()[1]
		var to atomic.Value
		to.Store(a.Addr())
		e := testkit.Open(t, "redis://some.name:6379", testkit.LeaseOf(3*time.Second), func(c *engine.Config) {
			c.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, to.Load().(string))
			}
		})
		h := testkit.MustLock(t, e.Mutex("x"))
		waiter := e.Mutex("x").LockAsync(testkit.Ctx(t)) // so that it listens, too
		testkit.Eventually(t, "it listens", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 1 })
		r.AwaitInStep()
		r.Promote(b)
		to.Store(b.Addr())
		renewed := e.Stats().Renewed
		testkit.Eventually(t, "it is renewed at the new primary", func() bool { return e.Stats().Renewed > renewed+1 })
		if err := h.Err(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it listens there", func() bool { return fmt.Sprint(b.Do("PUBSUB", "CHANNELS")) == "[redisson_lock__channel:{x}]" })
		testkit.MustUnlock(t, h)
		if h, err := waiter.Await(testkit.Ctx(t)); err != nil {
			t.Error(err)
		} else {
			testkit.MustUnlock(t, h)
		}
	})
}

// Waiters are woken by the new primary's messages, not only by the lease's end.
func TestWaitersAreWokenAfterAPromotion(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	at := testkit.Replicated(r)
	a, b := at.Open(t), at.Open(t)
	h := testkit.MustLock(t, a.Mutex("x"))
	f := b.Mutex("x").LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it listens", func() bool { return testkit.Client(b).Stats().ChannelsConfirmed == 1 })
	r.AwaitInStep()
	promoted := r.Servers()[1]
	r.Promote(promoted)
	testkit.Eventually(t, "it listens at the new primary", func() bool {
		return fmt.Sprint(promoted.Do("PUBSUB", "NUMSUB", "redisson_lock__channel:{x}")) == "[redisson_lock__channel:{x} 1]"
	})
	testkit.MustUnlock(t, h)
	next, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, next)
}
