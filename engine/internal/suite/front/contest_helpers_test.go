package front

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

const (
	queue   = "pawl_queue:{x}"
	channel = "redisson_lock__channel:{x}"
	// places is how many the front has.
	places = 3
	// limit is how long all waiters of a contest may take, even if some find the free lock by their alarm alone.
	limit = 20 * time.Second
)

// contest is the lock x, which many engines want.
type contest struct {
	t       testing.TB
	at      *testkit.Site
	lock    func(e *engine.Engine) engine.Mutex
	options []engine.Option
	engines []*engine.Engine // those of this process
	all     sync.WaitGroup   // its waiters

	inside atomic.Int32
	grants atomic.Int64

	mu    sync.Mutex
	waits map[*wait]bool
}

// wait is one that goes on.
type wait struct {
	asked     time.Time
	overtaken int // by how many that asked later
}

func mutex(e *engine.Engine) engine.Mutex  { return e.Mutex("x") }
func fenced(e *engine.Engine) engine.Mutex { return e.FencedMutex("x") }

func newContest(t testing.TB, at *testkit.Site) *contest {
	return &contest{t: t, at: at, lock: mutex, waits: make(map[*wait]bool)}
}

// open opens n engines of this process.
func (c *contest) open(n int, change ...func(*engine.Config)) []*engine.Engine {
	c.t.Helper()
	var list []*engine.Engine
	for range n {
		list = append(list, c.at.Open(c.t, change...))
	}
	c.engines = append(c.engines, list...)
	c.t.Cleanup(func() {
		if c.t.Failed() {
			for _, e := range list {
				testkit.Report(c.t, e)
			}
		}
	})
	return list
}

// waiter is one turn of an engine, which comes in the future.
type waiter struct {
	*engine.Engine
	cancel context.CancelFunc
	served chan error // one error, nil after the turn
}

// wait has an engine wait for one turn.
func (c *contest) wait(e *engine.Engine) *waiter {
	ctx, cancel := context.WithCancel(testkit.Within(c.t, limit))
	w := &waiter{Engine: e, cancel: cancel, served: make(chan error, 1)}
	c.all.Go(func() {
		_, err := c.turn(ctx, e)
		cancel()
		w.served <- err
	})
	return w
}

// ask notes a wait that begins, and end one that ends.
func (c *contest) ask() *wait {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := &wait{asked: time.Now()}
	c.waits[own] = true
	return own
}

func (c *contest) end(own *wait, granted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waits, own)
	for other := range c.waits {
		if granted && other.asked.Before(own.asked) {
			other.overtaken++
		}
	}
}

// turn takes the lock once. It returns how many others had it meanwhile that had asked later.
func (c *contest) turn(ctx context.Context, e *engine.Engine) (overtaken int, err error) {
	own := c.ask()
	h, err := c.lock(e).Lock(ctx, c.options...)
	c.end(own, err == nil)
	if err != nil {
		return 0, err
	}
	if !c.inside.CompareAndSwap(0, 1) {
		c.t.Errorf("%s has the lock, and another engine, too", h.Owner())
	}
	c.grants.Add(1)
	_, _ = c.at.Servers()[0].Process.Do("PING") // so that others, who should be kept out, have the time to come in
	c.inside.Store(0)
	return own.overtaken, h.Unlock(testkit.Within(c.t, limit))
}

// line has engines wait for a turn each, in this order.
func (c *contest) line(engines ...*engine.Engine) (list []*waiter) {
	c.t.Helper()
	for _, e := range engines {
		before := len(c.queue())
		list = append(list, c.wait(e))
		c.awaitPlaces(before + 1)
	}
	return list
}

// queue are the ids of the engines that are in the queue.
func (c *contest) queue() []string {
	list, _ := c.at.Do(queue, "ZRANGE", queue, "0", "-1").([]any)
	ids := make([]string, len(list))
	for i, id := range list {
		ids[i] = id.(string)
	}
	return ids
}

func (c *contest) awaitPlaces(n int) {
	c.t.Helper()
	testkit.Eventually(c.t, fmt.Sprintf("%d engines are in the queue", n), func() bool { return len(c.queue()) == n })
}

// awaitGone waits until an engine has no place in the queue.
func (c *contest) awaitGone(e *engine.Engine) {
	c.t.Helper()
	testkit.Eventually(c.t, "its place is given up", func() bool { return !slices.Contains(c.queue(), e.ID()) })
}

// awaitAsleep waits until all engines in the queue sleep: those in the front listen for releases, the others for
// calls alone. The engines must all be of this process.
func (c *contest) awaitAsleep() {
	c.t.Helper()
	testkit.Eventually(c.t, "all sleep", func() bool {
		order := c.queue()
		for _, e := range c.engines {
			place := slices.Index(order, e.ID())
			state := fmt.Sprint(testkit.Inside(e).States)
			if place >= 0 && (!strings.Contains(state, "Head:asleep") || place < places && !strings.Contains(state, "Channel:heard")) ||
				place >= places && (testkit.Client(e).Stats().ChannelsConfirmed != 1 || strings.Contains(state, "Channel:heard")) {
				return false
			}
		}
		return true
	})
}

// wantServed waits until all have had their turn.
func (c *contest) wantServed(list ...*waiter) {
	c.t.Helper()
	for i, w := range list {
		if err := <-w.served; err != nil {
			c.t.Errorf("waiter %d (%s): %v; the queue: %v", i, w.ID(), err, c.queue())
		}
	}
}

// loop has each engine take the lock n times. It returns how often one was overtaken at most while it waited.
func (c *contest) loop(n int, engines ...*engine.Engine) (worst int) {
	c.t.Helper()
	var most atomic.Int64
	var loops sync.WaitGroup
	ctx := testkit.Within(c.t, limit)
	for _, e := range engines {
		loops.Go(func() {
			for i := range n {
				overtaken, err := c.turn(ctx, e)
				if err != nil {
					c.t.Errorf("turn %d of %s: %v", i, e.ID(), err)
					return
				}
				n := int64(overtaken)
				if i == 0 { // all begin at once, and join in any order
					n = 0
				}
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
			}
		})
	}
	loops.Wait()
	return int(most.Load())
}

// wantOnlyTheDead fails the test if an engine of this process has a place in the queue that it does not
// need any more. The places of processes that were killed end with the queue, after a minute.
func (c *contest) wantOnlyTheDead() {
	c.t.Helper()
	for _, e := range c.engines {
		c.awaitGone(e)
	}
	c.wantQueueEnds()
}

// wantQueueEnds fails the test if anything is left but a queue that ends by itself.
func (c *contest) wantQueueEnds() {
	c.t.Helper()
	if ttl, ok := c.at.Do(queue, "PTTL", queue).(int64); !ok || ttl == -1 || ttl > 60_000 {
		c.t.Errorf("the queue has %d ms left", ttl)
	}
	c.at.Do(queue, "DEL", queue)
	c.at.Clean(c.t)
}

func single(t testing.TB, opts ...redistest.Option) *testkit.Site {
	t.Helper()
	return testkit.Single(testkit.Server(t, opts...))
}

// cluster has sharded messages if sharded is "auto" and the servers can, and plain ones if it is "off".
func cluster(t testing.TB, sharded string) *testkit.Site {
	t.Helper()
	at := testkit.Clustered(redistest.StartCluster(t, false))
	at.URL += "?sharded_pubsub=" + sharded
	return at
}
