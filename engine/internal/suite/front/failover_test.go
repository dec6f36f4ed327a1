package front

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// brief is a lease that tests can wait for: a promoted replica may have a lock that was released.
const brief = 4 * time.Second

// failover is a primary and a replica that lags behind, and engines that follow whichever is the primary.
type failover struct {
	*contest
	servers  *redistest.Replicated
	link     *redistest.Link
	promoted *redistest.Server
}

func newFailover(t testing.TB) *failover {
	t.Helper()
	servers := redistest.StartReplicated(t, 1)
	f := &failover{servers: servers, promoted: servers.Servers()[1]}
	f.contest = newContest(t, testkit.Replicated(servers))
	f.link = servers.Through(f.promoted, servers.Servers()[0])
	return f
}

func (f *failover) open(n int) []*engine.Engine {
	return f.contest.open(n, testkit.LeaseOf(brief))
}

// hold waits until the replica answers so about a key, and lets nothing more through to it.
func (f *failover) hold(verb, key string, want int64) {
	f.t.Helper()
	testkit.Eventually(f.t, "the replica has "+key, func() bool { return f.promoted.Do(verb, key) == want })
	f.link.Hold()
}

// promote makes the replica the primary as it is. The old primary follows it.
func (f *failover) promote() {
	f.t.Helper()
	f.link.Cut()
	f.servers.Promote(f.promoted)
}

// The new primary knows who holds the lock, and nothing of those that wait.
func TestMutex_PromotedReplicaLacksTheQueue_AllAreServed(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or the lock is lost before its holder has followed
		f := newFailover(t)
		h := testkit.MustLock(t, f.lock(f.open(1)[0]))
		f.hold("EXISTS", "x", 1)
		list := f.line(f.open(8)...)
		f.awaitAsleep()
		f.promote()
		f.awaitFollowed(h)
		testkit.MustUnlock(t, h)
		f.wantServed(list...)
		f.loop(5, f.engines...)
		f.wantOnlyTheDead()
	})
}

// The new primary has a queue as it was: of engines that have had their turn, or do not wait any more, and not
// of those that came later. It may also have a lock that was released.
func TestMutex_PromotedReplicaHasAnOldQueue_AllAreServed(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	h := testkit.MustLock(t, f.lock(f.open(1)[0]))
	old := f.line(f.open(8)...)
	f.awaitAsleep()
	f.hold("ZCARD", queue, 8)
	for _, w := range old[5:] { // of those behind three give up
		w.cancel()
		<-w.served
		f.awaitGone(w.Engine)
	}
	testkit.MustUnlock(t, h)
	f.wantServed(old[:5]...)
	next := testkit.MustLock(t, f.lock(f.engines[0]))
	young := f.line(f.open(8)...)
	f.promote()
	_ = next.Unlock(testkit.Ctx(t)) // the new primary knows nothing of it
	f.wantServed(young...)
	f.loop(5, f.engines...)
	f.wantQueueEnds() // the old places of living engines, too: nobody asks for them any more
}

// awaitFollowed waits until the holder, and all that wait, are with the new primary: a lock that the old one
// gives now may be lost.
func (c *contest) awaitFollowed(h *engine.Hold) {
	c.t.Helper()
	primary := c.at.Servers()[0]
	testkit.Eventually(c.t, "all listen at the new primary", func() bool {
		words := []string{"PUBSUB", "NUMSUB", channel}
		for _, e := range c.engines {
			words = append(words, channel+":"+e.ID())
		}
		list, _ := primary.Do(words...).([]any)
		var heard int64
		for i := 1; i < len(list); i += 2 {
			heard += list[i].(int64)
		}
		return heard >= int64(len(c.engines)-1) // the first one holds the lock
	})
	testkit.RenewedAfter(c.t, h, h.ValidUntil())
}

// Sentinels promote one of two replicas while engines wait.
func TestMutex_SentinelFailover_AllAreServed(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or the lock is lost before its holder has followed
		servers := redistest.StartSentinel(t)
		c := newContest(t, testkit.Replicated(servers))
		h := testkit.MustLock(t, c.lock(c.open(1, testkit.LeaseOf(brief))[0]))
		list := c.line(c.open(8, testkit.LeaseOf(brief))...)
		servers.AwaitInStep()
		servers.Failover()
		c.awaitFollowed(h)
		testkit.MustUnlock(t, h)
		for i, w := range list { // a grant of the old primary may be lost with it
			if err := <-w.served; err != nil && !errors.Is(err, engine.ErrLost) {
				t.Errorf("waiter %d: %v", i, err)
			}
		}
		c.wantQueueEnds() // a place that was given up at the old primary may be left at the new one
	})
}
