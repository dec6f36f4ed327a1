package topology

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// group holds locks and waits for others while a deployment is in trouble: holders
// that keep theirs and renew them all the time, and pairs of engines that hand names to
// and fro. Those inside a name are counted, so two at a time are seen.
type group struct {
	t          testing.TB
	keepers    []*engine.Engine
	contenders []*engine.Engine
	held       []*engine.Hold
	inside     []atomic.Pointer[engine.Hold] // who is in each name
	passed     []atomic.Int64                // of each name
	double     atomic.Int64
	lost       atomic.Int64
	stolen     atomic.Int64 // by the server's own record
	unacked    atomic.Int64 // refused for want of replicas, and tried again
	stop       chan struct{}
	wg         sync.WaitGroup
}

// The load: 400 held, and 320 that wait. More keep the processors busy with the load, and not with the
// trouble.
const (
	manyHeld  = 400
	contended = 20 // names, each with
	perName   = 8  // contenders of each of two engines

	// A lock that comes back with a failover, after it was released, is taken for that long.
	contendedLease = 8 * time.Second
)

func gather(t testing.TB, at *testkit.Site) *group {
	t.Helper()
	c := &group{t: t, stop: make(chan struct{}), inside: make([]atomic.Pointer[engine.Hold], contended), passed: make([]atomic.Int64, contended)}
	for range 2 {
		// The servers of a busy machine may take long to replace one of theirs.
		c.keepers = append(c.keepers, at.Open(t, testkit.LeaseOf(5*time.Minute)))
		c.contenders = append(c.contenders, at.Open(t, testkit.LeaseOf(contendedLease)))
	}
	ctx := testkit.Ctx(t) // one for all: each has a timer until the test ends
	take := func(ctx context.Context, i int) *engine.Future[*engine.Hold] {
		return c.keepers[i%len(c.keepers)].Mutex(fmt.Sprint("held/", i)).LockAsync(ctx)
	}
	var taking []*engine.Future[*engine.Hold]
	for i := range manyHeld {
		taking = append(taking, take(ctx, i))
	}
	for i, f := range taking {
		h, err := f.Await(ctx)
		for again := cputime.Now(); errors.Is(err, engine.ErrNotAcked) && again.Elapsed() < testkit.Limit; { // in time
			h, err = take(testkit.Ctx(t), i).Await(testkit.Ctx(t))
		}
		if err != nil {
			t.Fatal(err)
		}
		c.held = append(c.held, h)
	}
	for i := range contended {
		for _, e := range c.contenders {
			for range perName {
				c.wg.Go(func() { c.contend(e, i) })
			}
		}
	}
	c.wg.Go(c.renew)
	t.Cleanup(func() { c.end() })
	return c
}

// renew renews all that is held, again and again.
func (c *group) renew() {
	tick := time.NewTicker(1500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, e := range c.keepers {
				testkit.RenewAll(e)
			}
		case <-c.stop:
			return
		}
	}
}

// renewed waits until all are renewed twice more.
func (c *group) renewed(what string) {
	c.t.Helper()
	sum := func() (n uint64) {
		for _, e := range c.keepers {
			n += e.Stats().Renewed
		}
		return n
	}
	before := sum()
	testkit.Eventually(c.t, what, func() bool { return sum() >= before+2*manyHeld })
}

func (c *group) contend(e *engine.Engine, i int) {
	m := e.Mutex(fmt.Sprint("contended/", i))
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		ctx, cancel := cputime.WithTimeout(context.Background(), 2*testkit.Limit)
		h, err := m.Lock(ctx)
		cancel()
		if errors.Is(err, engine.ErrNotAcked) {
			c.unacked.Add(1)
			select {
			case <-c.stop:
			case <-time.After(250 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			select {
			case <-c.stop:
			default:
				c.t.Errorf("%s: %v", m.Name(), err)
			}
			return
		}
		// One that ended while its goroutine did not get to run is no other holder.
		if other := c.inside[i].Swap(h); other != nil && h.Err() == nil && other.Err() == nil {
			c.double.Add(1)
		}
		until := h.ValidUntil()
		// What does the server say? Another holder, and we have not been told?
		if s, err := m.State(context.Background()); err == nil && s.Locked && h.Err() == nil && (len(s.Holders) != 1 || s.Holders[0].ID != h.Owner()) {
			c.stolen.Add(1)
		}
		// A moment inside, so that others must wait and be woken, and so that the load
		// leaves something of the machine.
		select {
		case <-h.Done():
			// Else its time was over before this goroutine, or the server, got to run.
			if time.Now().Before(until.Add(-100 * time.Millisecond)) {
				c.lost.Add(1)
			}
		case <-time.After(50 * time.Millisecond):
		}
		c.inside[i].CompareAndSwap(h, nil)
		_ = h.Unlock(context.Background()) // unknown and lost are the trouble's
		c.passed[i].Add(1)
	}
}

// goesOn waits until n more have passed each of the names, and says how long that took.
func (c *group) goesOn(what string, n int64, names ...int) {
	c.t.Helper()
	c.goesOnSince(time.Now(), what, n, names...)
}

// goesOnSince is goesOn for something that began before.
func (c *group) goesOnSince(start time.Time, what string, n int64, names ...int) {
	c.t.Helper()
	if len(names) == 0 {
		for i := range c.passed {
			names = append(names, i)
		}
	}
	var first time.Duration
	target := make([]int64, len(names))
	for at, i := range names {
		target[at] = c.passed[i].Load() + n
	}
	testkit.Eventually(c.t, what+": the crowd goes on", func() bool {
		left := 0
		for at, i := range names {
			switch {
			case c.passed[i].Load() < target[at]:
				left++
			case first == 0:
				first = time.Since(start)
			}
		}
		return left == 0
	})
	c.t.Logf("%s: %d passed each of %d names, the first after %v, all after %v", what, n, len(names), first.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
}

// exclusive fails the test if anybody was inside with another, here or by the server's
// own record, or lost a lock within its moment.
func (c *group) exclusive() {
	c.t.Helper()
	if c.double.Load()+c.stolen.Load()+c.lost.Load() != 0 {
		c.t.Errorf("%d were inside with another, %d while the server had another, %d lost", c.double.Load(), c.stolen.Load(), c.lost.Load())
	}
}

// end stops the contenders and returns when they have gone.
func (c *group) end() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.wg.Wait()
}

// keeps fails the test if one of the held locks is lost here, or not on the server.
func (c *group) keeps(do func(key string, words ...string) any) {
	c.t.Helper()
	for _, h := range c.held {
		if err := h.Err(); err != nil {
			c.t.Errorf("%s: %v", h.Name(), err)
		}
	}
	// Asking takes a few round trips: a sample of them, of every part of the slots.
	for i := 0; i < len(c.held); i += 7 {
		h := c.held[i]
		if n := do(h.Name(), "HGETALL", h.Name()); fmt.Sprint(n) != fmt.Sprintf("[%s 1]", h.Owner()) {
			c.t.Errorf("%s is held by %s here, and on the server: %v", h.Name(), h.Owner(), n)
		}
	}
}

func (c *group) unlockAll() {
	c.t.Helper()
	var going []*engine.Future[struct{}]
	for _, h := range c.held {
		going = append(going, h.UnlockAsync())
	}
	if _, err := engine.AwaitAll(testkit.Ctx(c.t), going...); err != nil {
		c.t.Error(err)
	}
}

// Slots move back and forth while their locks are held and waited for.
func TestMigrationOfSlotsLosesNoLockAndNoWaiter(t *testing.T) {
	t.Parallel()
	for _, sharding := range []string{"on", "off"} {
		t.Run("sharding "+sharding, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, false)
			at := testkit.Clustered(cluster)
			at.URL += "?sharded_pubsub=" + sharding
			c := gather(t, at)
			primaries := cluster.Primaries()
			for round := range 3 {
				for i := range 6 { // of the contended names
					slot := cluster.Slot(fmt.Sprint("contended/", i))
					from := cluster.AwaitOwner(slot)
					to := primaries[(i+round)%len(primaries)]
					if from == to {
						continue
					}
					cluster.BeginMove(slot, from, to)
					c.goesOn("while a slot is open", 2, i)
					cluster.EndMove(slot, from, to)
				}
				for i := 0; i < manyHeld; i += manyHeld / 7 {
					cluster.Move(cluster.Slot(fmt.Sprint("held/", i)), primaries[(i+round)%len(primaries)])
				}
				c.goesOn(fmt.Sprint("round ", round), 3)
			}
			c.renewed("all are renewed where they are now")
			c.keeps(at.Do)
			c.end()
			c.exclusive()
			sentOn := uint64(0) // by the contenders; renewals may always know already
			for _, e := range c.contenders {
				sentOn += e.Stats().Redirects
			}
			if sentOn == 0 {
				t.Error("nothing was sent on: the test moves nothing")
			}
			c.unlockAll()
			at.Clean(t)
		})
	}
}

// The replica takes over on command: nothing is lost, since the primary waits for it.
func TestClusterFailoverOnCommand(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, true)
	at := testkit.Clustered(cluster)
	c := gather(t, at)
	c.goesOn("before", 2)
	for _, primary := range cluster.Primaries() {
		cluster.FlushScripts()
		c.goesOn("every script forgotten", 2)
		cluster.Failover(cluster.ReplicaOf(primary))
		c.goesOn("a failover on command", 2)
	}
	cluster.AwaitUp()
	c.renewed("all are renewed by the new primaries")
	c.keeps(at.Do)
	c.end()
	c.exclusive()
	c.unlockAll()
	at.Clean(t)
}

// A primary dies. Its replica may miss the last writes, so what was asked for in the
// last moments is not judged; whatever the servers have, the engines follow.
func TestDeadPrimaryOfAClusterIsReplaced(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, true)
	at := testkit.Clustered(cluster)
	c := gather(t, at)
	c.goesOn("before", 2)
	cluster.AwaitInStep()
	dead := cluster.Primaries()[0]
	var lost, alive []int // names
	for i := range contended {
		if cluster.Owner(cluster.Slot(fmt.Sprint("contended/", i))) == dead {
			lost = append(lost, i)
		} else {
			alive = append(alive, i)
		}
	}
	dead.Kill()
	killed := time.Now()
	c.goesOn("the others while it is dead", 2, alive...)
	c.goesOnSince(killed, "its names, since the kill", 2, lost...)
	c.goesOn("after", 2)
	c.end()
	c.keeps(at.Do) // taken long before
	c.unlockAll()
	at.Clean(t)
}

// Sentinels replace a primary that is killed, and one that is healthy, on command.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t)
	at := testkit.Replicated(r)
	c := gather(t, at)
	c.goesOn("before", 2)

	r.AwaitInStep()
	commanded := time.Now()
	r.Failover()
	c.goesOnSince(commanded, "all names, since a failover was commanded", 2)
	c.keeps(at.Do)
	r.AwaitInStep()
	killed := 0
	for _, s := range r.Sentinels() { // those that are listened to, but one must remain
		if fmt.Sprint(s.Do("PUBSUB", "NUMSUB", "+switch-master")) != "[+switch-master 0]" && killed == 0 {
			s.Kill()
			killed++
		}
	}
	if killed == 0 {
		t.Error("no sentinel is listened to")
	}
	before := r.Primary()
	before.Kill()
	start := time.Now()
	r.AwaitOther(before)
	c.goesOnSince(start, "all names, since the kill", 2)
	c.end()
	c.keeps(at.Do)
	c.unlockAll()
	at.Clean(t)
}

// With all replicas acknowledging nothing has to be in step when the primary is
// killed: what is held is on whichever replica the sentinels choose.
func TestAcknowledgedLocksOutliveTheirPrimary(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t)
	at := testkit.Replicated(r)
	at.URL += "?replicas=all&ack_timeout=300ms"
	c := gather(t, at)
	c.goesOn("before", 2)
	before := r.Primary()
	before.Kill()
	start := time.Now()
	r.AwaitOther(before)
	t.Logf("from the kill to a new primary: %v", time.Since(start).Round(time.Millisecond))
	for used := cputime.Now(); len(r.Primary().Replicas()) == 0 && used.Elapsed() < time.Minute; {
		time.Sleep(10 * time.Millisecond) // a poll; without one the names do not go on, below
	}
	t.Logf("from the kill to its replica: %v; %d were refused for want of one", time.Since(start).Round(time.Millisecond), c.unacked.Load())
	// The dead one counts, until the sentinels have forgotten it.
	testkit.Eventually(t, "it is named as the one that is away", func() bool {
		_, err := c.keepers[0].Mutex("fresh").Lock(testkit.Ctx(t))
		return errors.Is(err, engine.ErrNotAcked) && testkit.HasText(err, "1 of 2 replicas") && testkit.HasText(err, "away: "+before.Addr())
	})
	r.Forget()
	c.goesOn("then", 2)
	now := r.Primary()
	for _, h := range c.held {
		if err := h.Err(); err != nil {
			t.Fatalf("%s: %v", h.Name(), err)
		}
		if now.Do("HEXISTS", h.Name(), h.Owner()) != int64(1) {
			t.Fatalf("%s was acknowledged by all replicas, and is gone", h.Name())
		}
	}
	c.renewed("all are renewed by the new primary")
	c.end()
	c.exclusive()
	c.unlockAll()
	// Of the others a few may have come back with the failover: releases are not
	// acknowledged.
	testkit.Eventually(t, "what was held is free", func() bool {
		list, _ := r.Primary().Do("KEYS", "held/*").([]any)
		return len(list) == 0
	})
}

// Somebody promotes a replica by hand and makes the others follow it.
func TestPromotionByHandIsFollowed(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2)
	at := testkit.Replicated(r)
	c := gather(t, at)
	c.goesOn("before", 2)
	r.AwaitInStep()
	r.Promote(r.Servers()[1])
	c.goesOn("after the promotion", 2)
	c.end()
	r.AwaitInStep()
	c.keeps(at.Do)
	c.unlockAll()
	at.Clean(t)
}
