package topology

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The tests here are about the node that a slot leaves, before any key has gone. A script that
// takes a key away there is refused if it asks for it again: it would be at the other node.

// leaving begins to move the slot of a name to another node.
func leaving(t testing.TB, cluster *redistest.Cluster, name string) (slot int, from, to *redistest.Server) {
	t.Helper()
	slot = cluster.Slot(name)
	from, to = cluster.AwaitOwner(slot), cluster.Primaries()[0]
	if to == from {
		to = cluster.Primaries()[1]
	}
	cluster.BeginMove(slot, from, to)
	return slot, from, to
}

// All permits are those of a process that has died, and their leases end.
func TestPermitsOfTheDeadComeBackWhereTheirSlotLeaves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	at := testkit.Clustered(cluster)
	off := func(c *engine.Config) { c.ShardedPubSub = "off" } // nobody can be subscribed to a sharded channel there
	a, b := at.Open(t, off), at.Open(t, off)
	sem := a.PermitSemaphore("x")
	if err := sem.SetPermits(testkit.Ctx(t), 3); err != nil {
		t.Fatal(err)
	}
	from := cluster.AwaitOwner(cluster.Slot("x"))
	end := func(d time.Duration) { // all at once: while the slot moves somebody asks ten times a second
		at := strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10)
		from.Do("ZADD", "{x}:timeout", at, "one", at, "two", at, "three")
	}
	from.Do("DECRBY", "x", "3")
	end(-time.Second)
	slot, from, to := leaving(t, cluster, "x")
	if n, err := sem.Available(testkit.Ctx(t)); n != 3 || err != nil {
		t.Errorf("%d permits are to be had: %v", n, err)
	}
	cluster.EndMove(slot, from, to)

	from = to
	from.Do("DECRBY", "x", "3")
	end(time.Hour)
	waits := b.PermitSemaphore("x").AcquireAsync(t.Context(), 2)
	testkit.Eventually(t, "it waits for a message", func() bool {
		heard := from.Do("PUBSUB", "NUMSUB", script.PermitChannel+":{x}").([]any)
		return b.Stats().Waiting == 1 && heard[1] == int64(1)
	})
	slot, from, to = leaving(t, cluster, "x")
	before := from.CommandStats()["publish"]
	end(-time.Second)
	from.Do("PUBLISH", script.PermitChannel+":{x}", "1")
	testkit.Eventually(t, "they are back", func() bool { return from.Do("EXISTS", "{x}:timeout") != int64(1) }) // but ASK
	if n := from.CommandStats()["publish"] - before; n < 2 {
		t.Error("nobody was told that they are back")
	}
	stayApart(t)
	cluster.EndMove(slot, from, to)
	h, err := waits.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if n, err := sem.Available(testkit.Ctx(t)); n != 3 || err != nil {
		t.Errorf("%d permits are to be had: %v", n, err)
	}
}

// The lock is released where its slot leaves, and its queue is there: the next one is told at once.
// (By an ordinary message: nobody can be subscribed to a sharded one there.)
func TestAFairLockIsReleasedWhereItsSlotLeaves(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one waits", "one who came before has died"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, false)
			at := testkit.Clustered(cluster)
			off := func(c *engine.Config) { c.ShardedPubSub = "off" }
			a, b := at.Open(t, off), at.Open(t, off)
			h := testkit.MustLock(t, a.FairMutex("x"))
			from := cluster.AwaitOwner(cluster.Slot("x"))
			if strings.Contains(name, "died") {
				from.Do("RPUSH", "redisson_lock_queue:{x}", "dead:1")
				from.Do("ZADD", "redisson_lock_timeout:{x}", "1", "dead:1")
			}
			waits := b.FairMutex("x").LockAsync(t.Context())
			testkit.Eventually(t, "it is queued, and nobody else", func() bool {
				return from.Do("LLEN", "redisson_lock_queue:{x}") == int64(1) && from.Do("LINDEX", "redisson_lock_queue:{x}", "0") != "dead:1"
			})
			slot, from, to := leaving(t, cluster, "x")
			before := from.CommandStats()["publish"]
			began := cputime.Now()
			testkit.MustUnlock(t, h)
			if d := began.Elapsed(); d > 2*time.Second {
				t.Errorf("released after %v", d)
			}
			if n := from.CommandStats()["publish"] - before; n == 0 {
				t.Error("nobody was told")
			}
			cluster.EndMove(slot, from, to)
			next, err := waits.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			testkit.MustUnlock(t, next)
			at.Clean(t)
		})
	}
}

// The queue was evicted, and the owner that was granted the lock then has a score still. So the release
// looks at the lock once more, which has gone.
func TestAFairLockWhoseQueueWasEvictedIsReleasedWhereItsSlotLeaves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	at := testkit.Clustered(cluster)
	off := func(c *engine.Config) { c.ShardedPubSub = "off" }
	a, b := at.Open(t, off), at.Open(t, off)
	const queue = "redisson_lock_queue:{x}"
	from := cluster.AwaitOwner(cluster.Slot("x"))
	queued := func() {
		testkit.Eventually(t, "it is queued", func() bool { return from.Do("LLEN", queue) == int64(1) })
	}
	h := testkit.MustLock(t, a.FairMutex("x"))
	waits := b.FairMutex("x").LockAsync(t.Context())
	queued()
	from.Do("DEL", queue)
	testkit.MustUnlock(t, h)
	h, err := waits.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	waits = a.FairMutex("x").LockAsync(t.Context())
	queued()
	slot, from, to := leaving(t, cluster, "x")
	testkit.MustUnlock(t, h)
	if n := b.Stats().Lost[engine.RemovedOnServer]; n != 0 {
		t.Errorf("%d are lost", n)
	}
	cluster.EndMove(slot, from, to)
	ended := cputime.Now()
	if h, err = waits.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	if d := ended.Elapsed(); d > 3*time.Second {
		t.Errorf("the next one got it after %v", d)
	}
	testkit.MustUnlock(t, h)
}

// A lock that nobody wants any more is released there by the command that takes it for another.
func TestALockIsGivenBackAndTakenWhereItsSlotLeaves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	slot, from, to := leaving(t, cluster, "x")
	from.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), "STABLE")
	from.Do("HSET", "x", "unwanted", "1")
	from.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", cluster.ID(to))
	before := from.CommandStats()["publish"]
	answer := from.Do("EVAL", script.Several.Text, "1", "x", "redisson_lock__channel:{x}", "PUBLISH", "30000", "wanted", "unwanted", "another")
	got, ok := answer.([]any)
	if !ok || len(got) != 3 || got[0] != int64(script.Done) || got[1] != int64(script.NotThere) {
		t.Fatalf("%v", answer)
	}
	if refused, ok := got[2].(redistest.ReplyError); !ok || !strings.Contains(refused.Error(), "non local key") {
		t.Errorf("the taking: %v", got[2])
	}
	if n := from.CommandStats()["publish"] - before; n != 1 {
		t.Errorf("waiters were told %d times", n)
	}
	cluster.EndMove(slot, from, to)
}

// Nobody's timeout key cannot be made where the slot leaves. So the writer stays until its MinHold is
// over, and then leaves the lock to the readers, as always.
func TestAWriterWithAMinHoldLeavesReadersBehindWhereItsSlotLeaves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	at := testkit.Clustered(cluster)
	off := func(c *engine.Config) { c.ShardedPubSub = "off" }
	a, b := at.Open(t, off), at.Open(t, off)
	w := testkit.MustLock(t, a.RWMutex("x").Writer(), engine.MinHold(2*time.Second))
	r, err := a.RWMutex("x").Reader().Lock(w.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	slot, from, to := leaving(t, cluster, "x")
	began := cputime.Now()
	testkit.MustUnlock(t, w)
	if d := began.Elapsed(); d > 5*time.Second {
		t.Errorf("released after %v", d)
	}
	if mode := from.Do("HGET", "x", "mode"); mode != "read" {
		t.Errorf("the mode is %v", mode)
	}
	cluster.EndMove(slot, from, to)
	other := testkit.MustLock(t, b.RWMutex("x").Reader())
	testkit.MustUnlock(t, other)
	testkit.MustUnlock(t, r)
	ended := cputime.Now()
	testkit.MustUnlock(t, testkit.MustLock(t, b.RWMutex("x").Writer()))
	if d := ended.Elapsed(); d > 5*time.Second {
		t.Errorf("the next writer got it after %v", d)
	}
	at.Clean(t)
}
