package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// movedAway is a cluster, a lock that one engine holds and another waits for, and the
// migration of its slot, up to where the key is at its new node and the slot is not.
type movedAway struct {
	at       *site
	cluster  *redistest.Cluster
	slot     int
	from, to *redistest.Server
	hold     *Hold
	waits    *Future[*Hold]
	waiter   *Engine
}

func moveAway(t *testing.T, asleepFirst bool) *movedAway {
	t.Helper()
	m := &movedAway{cluster: redistest.StartCluster(t, false)}
	m.at = clustered(m.cluster)
	a := m.at.open(t)
	m.waiter = m.at.open(t)
	if !m.waiter.client.Sharded() {
		t.Fatal("Redis 7 has sharded messages")
	}
	m.slot = m.cluster.Slot("x")
	m.from = m.cluster.AwaitOwner(m.slot)
	for _, s := range m.cluster.Primaries() {
		if s != m.from {
			m.to = s
		}
	}
	m.hold = mustLock(t, a.Mutex("x"), Lease(time.Hour))
	wait := func() {
		m.waits = m.waiter.Mutex("x").LockAsync(ctxT(t))
		eventually(t, "it listens", func() bool { return m.waiter.client.Stats().ChannelsConfirmed == 1 })
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
	start := time.Now()
	h, err := m.waits.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > within {
		t.Errorf("granted after %v", d)
	}
	mustUnlock(t, h)
}

// The lease is an hour, and no message reaches anybody while the slot is open.
func TestHeadOfAMovingSlotPolls(t *testing.T) {
	t.Parallel()
	m := moveAway(t, false)
	mustUnlock(t, m.hold)
	m.granted(t, 2*time.Second)
	m.cluster.EndMove(m.slot, m.from, m.to)
	m.at.clean(t)
}

func TestHeadThatSleptBeforeItsSlotMovedTriesWhenTheMoveEnds(t *testing.T) {
	t.Parallel()
	m := moveAway(t, true)
	mustUnlock(t, m.hold)
	m.cluster.EndMove(m.slot, m.from, m.to)
	m.granted(t, 4*time.Second)
	m.at.clean(t)
}

func TestHeadThatSleptBeforeItsSlotMovedTriesInAnyCase(t *testing.T) {
	t.Parallel()
	m := moveAway(t, true)
	mustUnlock(t, m.hold)
	m.granted(t, shardedPoll+2*time.Second)
	m.cluster.EndMove(m.slot, m.from, m.to)
	m.at.clean(t)
}
