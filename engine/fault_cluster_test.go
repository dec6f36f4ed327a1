package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// crowd holds locks and waits for others while a deployment is in trouble: holders
// that keep theirs, and pairs of engines that hand names to and fro. Whoever is
// inside a name counts, so two at a time are seen.
type crowd struct {
	t      *testing.T
	held   []*Hold
	inside []atomic.Int32
	passed atomic.Int64
	double atomic.Int64
	lost   atomic.Int64
	stop   chan struct{}
	wg     sync.WaitGroup
}

// The load: a thousand held, and a thousand that wait.
const (
	manyHeld  = 1000
	contended = 40 // names, each with
	perName   = 13 // contenders of each of two engines
)

func gather(t *testing.T, engines ...*Engine) *crowd {
	t.Helper()
	c := &crowd{t: t, stop: make(chan struct{}), inside: make([]atomic.Int32, contended)}
	var taking []*Future[*Hold]
	for i := range manyHeld {
		taking = append(taking, engines[i%len(engines)].Mutex(fmt.Sprint("held/", i)).LockAsync(ctxT(t)))
	}
	var err error
	if c.held, err = AwaitAll(ctxT(t), taking...); err != nil {
		t.Fatal(err)
	}
	for i := range contended {
		for _, e := range engines {
			for range perName {
				c.wg.Go(func() { c.contend(e, i) })
			}
		}
	}
	t.Cleanup(func() { c.end() })
	return c
}

func (c *crowd) contend(e *Engine, i int) {
	m := e.Mutex(fmt.Sprint("contended/", i))
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
		h, err := m.Lock(ctx)
		cancel()
		if err != nil {
			select {
			case <-c.stop:
			default:
				c.t.Errorf("%s: %v", m.Name(), err)
			}
			return
		}
		if c.inside[i].Add(1) > 1 {
			c.double.Add(1)
		}
		// A moment inside, so that others must wait and be woken.
		select {
		case <-h.Done():
			c.lost.Add(1)
		case <-time.After(time.Millisecond):
		}
		c.inside[i].Add(-1)
		_ = h.Unlock(context.Background()) // unknown and lost are the trouble's
		c.passed.Add(1)
	}
}

// goesOn waits until n more have passed, and says how long that took.
func (c *crowd) goesOn(what string, n int64) {
	c.t.Helper()
	start, target := time.Now(), c.passed.Load()+n
	eventually(c.t, what+": the crowd goes on", func() bool { return c.passed.Load() >= target })
	c.t.Logf("%s: %d passed within %v", what, n, time.Since(start).Round(time.Millisecond))
}

// end stops the contenders and returns when they have gone.
func (c *crowd) end() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.wg.Wait()
}

// keeps fails the test if one of the held locks is lost here, or not on the server.
func (c *crowd) keeps(do func(key string, words ...string) any) {
	c.t.Helper()
	for _, h := range c.held {
		if err := h.Err(); err != nil {
			c.t.Errorf("%s: %v", h.Name(), err)
		}
	}
	// Asking takes a few round trips: a sample of them, of every part of the slots.
	for i := 0; i < len(c.held); i += 17 {
		h := c.held[i]
		if n := do(h.Name(), "HGETALL", h.Name()); fmt.Sprint(n) != fmt.Sprintf("[%s 1]", h.Owner()) {
			c.t.Errorf("%s is held by %s here, and on the server: %v", h.Name(), h.Owner(), n)
		}
	}
}

func (c *crowd) unlockAll() {
	c.t.Helper()
	var going []*Future[struct{}]
	for _, h := range c.held {
		going = append(going, h.UnlockAsync())
	}
	if _, err := AwaitAll(ctxT(c.t), going...); err != nil {
		c.t.Error(err)
	}
}

func leaseOf(d time.Duration) func(*Config) { return func(c *Config) { c.Lease = d } }

// Slots move back and forth while their locks are held and waited for.
func TestMigrationOfSlotsLosesNoLockAndNoWaiter(t *testing.T) {
	t.Parallel()
	for _, sharding := range []string{"on", "off"} {
		t.Run("sharding "+sharding, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, false)
			at := clustered(cluster)
			at.url += "?sharding=" + sharding
			a, b := at.open(t, leaseOf(4*time.Second)), at.open(t, leaseOf(4*time.Second))
			c := gather(t, a, b)
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
					c.goesOn("while a slot is open", 5)
					cluster.EndMove(slot, from, to)
				}
				for i := 0; i < manyHeld; i += 143 {
					cluster.Move(cluster.Slot(fmt.Sprint("held/", i)), primaries[(i+round)%len(primaries)])
				}
				c.goesOn(fmt.Sprint("round ", round), 100)
			}
			n := a.Stats().Renewed + b.Stats().Renewed
			eventually(t, "all are renewed where they are now", func() bool { return a.Stats().Renewed+b.Stats().Renewed >= n+2*manyHeld })
			c.keeps(at.do)
			c.end()
			if n := c.double.Load() + c.lost.Load(); n != 0 {
				t.Errorf("%d were inside with another, %d lost", c.double.Load(), c.lost.Load())
			}
			if a.Stats().Redirects == 0 {
				t.Error("nothing was sent on: the test moves nothing")
			}
			c.unlockAll()
			at.clean(t)
		})
	}
}

// The replica takes over on command: nothing is lost, since the primary waits for it.
func TestClusterFailoverOnCommand(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, true)
	at := clustered(cluster)
	a, b := at.open(t, leaseOf(6*time.Second)), at.open(t, leaseOf(6*time.Second))
	c := gather(t, a, b)
	c.goesOn("before", 50)
	for _, primary := range cluster.Primaries() {
		cluster.FlushScripts()
		c.goesOn("every script forgotten", 50)
		cluster.Failover(cluster.ReplicaOf(primary))
		c.goesOn("a failover on command", 50)
	}
	cluster.AwaitUp()
	n := a.Stats().Renewed + b.Stats().Renewed
	eventually(t, "all are renewed by the new primaries", func() bool { return a.Stats().Renewed+b.Stats().Renewed >= n+2*manyHeld })
	c.keeps(at.do)
	c.end()
	c.unlockAll()
	at.clean(t)
}

// A primary dies. Its replica may miss the last writes, so what was asked for in the
// last moments is not judged; whatever the servers have, the engines follow.
func TestDeadPrimaryOfAClusterIsReplaced(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, true)
	at := clustered(cluster)
	a, b := at.open(t, leaseOf(20*time.Second)), at.open(t, leaseOf(20*time.Second))
	c := gather(t, a, b)
	c.goesOn("before", 50)
	cluster.AwaitInStep()
	cluster.Primaries()[0].Kill()
	c.goesOn("others while it is dead", 20)
	eventually(t, "the replica serves", func() bool { return len(cluster.Primaries()) == 3 && cluster.Owner(0) != nil })
	// Every contended name passes again, those of the dead primary included.
	for i := range c.inside {
		name := fmt.Sprint("contended/", i)
		h, err := a.Mutex(name).Lock(ctxT(t))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustUnlock(t, h)
	}
	c.goesOn("after", 100)
	c.end()
	c.keeps(at.do) // taken long before
	c.unlockAll()
	at.clean(t)
}

// One shard that hangs holds up nobody's renewals but its own.
func TestDeadShardDelaysNoOtherRenewals(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	at := clustered(cluster)
	e := at.open(t, leaseOf(3*time.Second))
	var healthy, hung []*Hold
	stopped := cluster.Nodes()[1]
	for i := range 300 {
		name := fmt.Sprint("x", i)
		owner := cluster.Owner(cluster.Slot(name))
		h := mustLock(t, e.Mutex(name))
		if owner == stopped {
			hung = append(hung, h)
		} else {
			healthy = append(healthy, h)
		}
	}
	if len(hung) == 0 {
		t.Fatal("no lock lies on the node that is to hang")
	}
	stopped.Stop()
	for _, h := range hung {
		<-h.Done()
		if err := h.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", h.Name(), err)
		}
	}
	n := e.Stats().Renewed
	eventually(t, "the others are renewed", func() bool { return e.Stats().Renewed >= n+uint64(2*len(healthy)) })
	for _, h := range healthy {
		if err := h.Err(); err != nil {
			t.Errorf("%s: %v", h.Name(), err)
		}
	}
	stopped.Cont()
	for _, h := range healthy {
		mustUnlock(t, h)
	}
	at.clean(t)
}

// Sentinels replace a primary that is killed, and one that is healthy, on command.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t)
	at := replicated(r)
	a, b := at.open(t, leaseOf(8*time.Second)), at.open(t, leaseOf(8*time.Second))
	c := gather(t, a, b)
	c.goesOn("before", 50)

	r.AwaitInStep()
	r.Sentinels()[0].Kill() // perhaps the one that is listened to
	before := r.Primary()
	before.Kill()
	start := time.Now()
	r.AwaitOther(before)
	c.goesOn("a new primary", 50)
	t.Logf("from the kill to there: %v", time.Since(start).Round(time.Millisecond))
	c.end()
	c.keeps(at.do)
	c.unlockAll()
	at.clean(t)
}

// Somebody promotes a replica by hand and makes the others follow it.
func TestPromotionByHandIsFollowed(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2)
	at := replicated(r)
	a, b := at.open(t, leaseOf(8*time.Second)), at.open(t, leaseOf(8*time.Second))
	c := gather(t, a, b)
	c.goesOn("before", 50)
	r.AwaitInStep()
	r.Promote(r.Servers()[1])
	c.goesOn("after the promotion", 50)
	c.end()
	r.AwaitInStep()
	c.unlockAll()
	at.clean(t)
}
