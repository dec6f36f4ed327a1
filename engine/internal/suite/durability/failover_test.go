package durability

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The figures of docs/durability.md are those of
//
//	PAWL_FAILOVERS=20 go test ./engine/internal/suite/durability -run TestFailoversOnCommand -timeout 60m -v
//
// with 1000 names around each failover. Without it there is one of each kind, with fewer.
func failoversOnCommand(t *testing.T) (failovers, names int, thorough bool) {
	v := os.Getenv("PAWL_FAILOVERS")
	if v == "" {
		return 1, 100, false
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("PAWL_FAILOVERS (%q) must be a number", v)
	}
	return n, 1000, true
}

// A failover on command detaches the replica that it promotes, while the old primary goes
// on. What all replicas have acknowledged is held once; and what is released meanwhile is
// free.
func TestFailoversOnCommand(t *testing.T) {
	t.Parallel()
	failovers, names, thorough := failoversOnCommand(t)
	for _, kind := range []struct {
		name  string
		start func(t *testing.T, replicas int) *failover
	}{
		{"sentinel", sentinelFailover},
		{"cluster", clusterFailover},
		{"cluster, takeover", takeoverFailover},
		{"replicas", replicasFailover},
	} {
		for _, replicas := range []int{2, 3} {
			for _, want := range []engine.Replicas{engine.AllReplicas, engine.MajorityOfReplicas} {
				if !thorough && (replicas > 2 || want != engine.AllReplicas) {
					continue
				}
				t.Run(fmt.Sprint(kind.name, ", ", replicas, " replicas, ", map[engine.Replicas]string{engine.AllReplicas: "all", engine.MajorityOfReplicas: "majority"}[want]), func(t *testing.T) {
					if !thorough {
						t.Parallel()
					}
					sum := kind.start(t, replicas).run(failovers, names, want)
					t.Log(sum)
					// A majority of two is both. Of three one is promoted, and two still acknowledge.
					if sum.double > 0 && (want == engine.AllReplicas || replicas == 2) {
						t.Errorf("%d locks were held twice", sum.double)
					}
					if sum.stuck > 0 {
						t.Errorf("%d locks were taken still, a second after the new primary was found", sum.stuck)
					}
					if sum.granted == 0 || sum.released == 0 {
						t.Error("nobody got anything")
					}
				})
			}
		}
	}
}

// failover is a deployment whose primary is replaced on command while it works.
type failover struct {
	t       *testing.T
	url     string
	tag     string // of the names: they lie with the primary that is replaced
	servers []*redistest.Server
	begin   func() // begins a failover
	calm    func() // waits until the next one may begin
}

// sentinelFailover has SENTINEL FAILOVER.
func sentinelFailover(t *testing.T, replicas int) *failover {
	r := redistest.StartSentinelOf(t, replicas)
	return &failover{
		t: t, url: r.URL(), servers: r.Servers(),
		begin: func() {
			testkit.Eventually(t, "a sentinel begins the failover", func() bool {
				return r.Sentinels()[0].Do("SENTINEL", "FAILOVER", redistest.MasterName) == "OK"
			})
		},
		calm: func() {
			testkit.Eventually(t, "all replicas are attached", func() bool { return len(r.Primary().Replicas()) == replicas })
			r.AwaitInStep()
		},
	}
}

// replicasFailover has REPLICAOF NO ONE at a replica, and then at the others that they
// follow it.
func replicasFailover(t *testing.T, replicas int) *failover {
	r := redistest.StartReplicated(t, replicas)
	return &failover{
		t: t, url: r.URL(), servers: r.Servers(),
		begin: func() {
			primary := r.Primary()
			for _, s := range r.Servers() {
				if s != primary {
					r.Promote(s)
					return
				}
			}
		},
		calm: func() {
			testkit.Eventually(t, "all replicas are attached", func() bool { return len(r.Primary().Replicas()) == replicas })
			r.AwaitInStep()
		},
	}
}

// clusterFailover has CLUSTER FAILOVER: the primary stops writes until it has been
// replaced.
func clusterFailover(t *testing.T, replicas int) *failover {
	return clusterFailoverBy(t, replicas)
}

// takeoverFailover has CLUSTER FAILOVER TAKEOVER: the primary is told when it has been
// replaced.
func takeoverFailover(t *testing.T, replicas int) *failover {
	return clusterFailoverBy(t, replicas, "TAKEOVER")
}

func clusterFailoverBy(t *testing.T, replicas int, option ...string) *failover {
	c := redistest.StartClusterOf(t, replicas)
	tag := inFirstPart(c)
	slot := c.Slot(tag)
	var latest time.Time
	return &failover{
		t: t, url: c.URL(), tag: tag, servers: c.Nodes(),
		begin: func() {
			latest = time.Now()
			c.Failover(c.ReplicaOf(c.AwaitOwner(slot)), option...)
		},
		calm: func() {
			testkit.Eventually(t, "all replicas are attached", func() bool {
				owner := c.Owner(slot)
				return owner != nil && len(owner.Replicas()) == replicas
			})
			c.AwaitUp()
			// Primaries vote for one replica of a primary within two node timeouts.
			testkit.Eventually(t, "they vote again", func() bool { return time.Since(latest) > 3500*time.Millisecond })
		},
	}
}

// inFirstPart returns a hash tag that the first primary of a cluster serves.
func inFirstPart(c *redistest.Cluster) string {
	for i := 0; ; i++ {
		if tag := fmt.Sprintf("{%d}", i); c.Slot(tag) < redistest.Slots/3 {
			return tag
		}
	}
}

// counter is what became of the locks that were asked for around failovers.
type counter struct {
	failovers int
	asked     int // fresh names, with acknowledgements
	granted   int
	refused   int // for want of replicas
	failed    int // otherwise
	double    int // granted, and then by the new primary to another
	released  int // plain locks, within two seconds before the new primary was found
	back      int // of these: taken at the new primary when it was found
	stuck     int // and a second later
	slowest   time.Duration
	free      []time.Duration // by failover: when none of these was taken any more
}

func (s counter) String() string {
	return fmt.Sprintf("%d failovers: %d names asked for, %d granted, %d refused for want of replicas, %d failed otherwise, %d held twice; "+
		"%d released within two seconds before the new primary was found, %d of them taken there, %d a second later; all were free after %v (median), %v at most; a failover took %v at most",
		s.failovers, s.asked, s.granted, s.refused, s.failed, s.double, s.released, s.back, s.stuck,
		s.free[len(s.free)/2].Round(time.Millisecond), s.free[len(s.free)-1].Round(time.Millisecond), s.slowest.Round(time.Millisecond))
}

func (s *counter) add(one counter) {
	s.failovers++
	s.asked += one.asked
	s.granted += one.granted
	s.refused += one.refused
	s.failed += one.failed
	s.double += one.double
	s.released += one.released
	s.back += one.back
	s.stuck += one.stuck
	s.slowest = max(s.slowest, one.slowest)
	s.free = slices.Sorted(slices.Values(append(s.free, one.free...)))
}

// run goes through failovers.
func (s *failover) run(failovers, names int, want engine.Replicas) (sum counter) {
	s.t.Helper()
	holder := testkit.Open(s.t, s.url, testkit.AckTimeout(300*time.Millisecond), func(c *engine.Config) { c.Replicas = want })
	plain, stranger := testkit.Open(s.t, s.url), testkit.Open(s.t, s.url)
	for round := range failovers {
		s.calm()
		sum.add(s.one(holder, plain, stranger, fmt.Sprint(s.tag, "n", round, "."), names))
		s.t.Log(sum)
	}
	return sum
}

// one takes fresh names all the time, and others that it gives back at once, while the
// primary is replaced. Then a stranger tries to take what was granted.
func (s *failover) one(holder, plain, stranger *engine.Engine, prefix string, names int) (sum counter) {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	takers := takeFresh(ctx, holder, prefix+"held.")
	givers := giveFresh(ctx, plain, prefix+"plain.", names/4)
	route := testkit.Client(holder).Route(prefix)
	old := testkit.Client(plain).AddrOf(route)
	testkit.Eventually(s.t, "they are at it", func() bool { return takers.asked.Load() >= int64(names/4) && givers.count() >= names })
	s.begin()
	begun := time.Now()
	testkit.Eventually(s.t, "the new primary is found", func() bool { return testkit.Client(plain).AddrOf(route) != old })
	found, mark := time.Now(), cputime.Now()
	next := s.at(testkit.Client(plain).AddrOf(route))
	sum.released, sum.back = givers.check(next, found)
	free, clear := time.Duration(0), sum.back == 0
	for mark.Elapsed() < time.Second {
		time.Sleep(10 * time.Millisecond) // not a hope: it is what is measured
		_, taken := givers.check(next, found)
		if taken == 0 && !clear {
			free = time.Since(found)
		}
		clear = taken == 0
	}
	if _, sum.stuck = givers.check(next, found); sum.stuck > 0 {
		free = time.Since(found)
	}
	sum.free = append(sum.free, free)
	testkit.Eventually(s.t, "the holder has found it, too", func() bool { return testkit.Client(holder).AddrOf(route) != old })
	sum.slowest = found.Sub(begun)
	testkit.Eventually(s.t, "enough names", func() bool { return takers.asked.Load() >= int64(names) })
	stop()
	takers.wg.Wait()
	givers.wg.Wait()

	var second []*engine.Future[*engine.Hold]
	for _, h := range takers.mu.held {
		second = append(second, stranger.Mutex(h.Name()).TryLockAsync(testkit.Ctx(s.t)))
	}
	for i, f := range second {
		got, err := f.Await(testkit.Ctx(s.t))
		if errors.Is(err, engine.ErrUnavailable) { // it had not found the new primary yet
			testkit.Eventually(s.t, "the new primary answers", func() bool {
				got, err = stranger.Mutex(takers.mu.held[i].Name()).TryLock(testkit.Ctx(s.t))
				return !errors.Is(err, engine.ErrUnavailable)
			})
		}
		if err == nil && takers.mu.held[i].Err() == nil {
			sum.double++
		}
		if err == nil {
			got.UnlockAsync()
		}
	}
	for _, h := range takers.mu.held {
		h.UnlockAsync()
	}
	sum.asked, sum.granted = int(takers.asked.Load()), len(takers.mu.held)
	sum.refused, sum.failed = int(takers.refused.Load()), int(takers.failed.Load())
	return sum
}

func (s *failover) at(addr string) *redistest.Server {
	for _, server := range s.servers {
		if server.Addr() == addr {
			return server
		}
	}
	s.t.Fatalf("%s is no server of this test", addr)
	return nil
}

// taking is takers of fresh names, which they keep.
type taking struct {
	asked, refused, failed atomic.Int64
	wg                     sync.WaitGroup
	mu                     struct {
		sync.Mutex
		held []*engine.Hold
	}
}

func takeFresh(ctx context.Context, e *engine.Engine, prefix string) *taking {
	c := new(taking)
	for i := range 16 {
		c.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.asked.Add(1)
				h, err := e.Mutex(fmt.Sprint(prefix, i, ".", n)).Lock(context.Background(), engine.Lease(time.Minute), engine.Wait(time.Second))
				switch {
				case err == nil:
					c.mu.Lock()
					c.mu.held = append(c.mu.held, h)
					c.mu.Unlock()
				case errors.Is(err, engine.ErrNotAcked):
					c.refused.Add(1)
				default:
					c.failed.Add(1)
				}
				testkit.Pause(ctx.Done(), 8*time.Millisecond)
			}
		})
	}
	return c
}

// giving is some givers: they take fresh names without acknowledgements, keep them for half a
// second, and give them back.
type giving struct {
	prefix string
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		at map[string]time.Time // by name: when Unlock returned nil
	}
}

func giveFresh(ctx context.Context, e *engine.Engine, prefix string, givers int) *giving {
	c := &giving{prefix: prefix}
	c.mu.at = make(map[string]time.Time)
	for i := range givers {
		c.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				h, err := e.Mutex(fmt.Sprint(prefix, i, ".", n)).TryLock(ctx, engine.Acked(0))
				testkit.Pause(ctx.Done(), 500*time.Millisecond)
				if err == nil && h.Unlock(context.Background()) == nil {
					c.mu.Lock()
					c.mu.at[h.Name()] = time.Now()
					c.mu.Unlock()
				}
			}
		})
	}
	return c
}

func (c *giving) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.at)
}

// check counts the names that were released within two seconds before an instant, and
// those of them that are taken on a server now.
func (c *giving) check(s *redistest.Server, before time.Time) (released, taken int) {
	list, _ := s.Do("KEYS", strings.NewReplacer("{", "?", "}", "?").Replace(c.prefix)+"*").([]any)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.mu.at {
		if age := before.Sub(at); age >= 0 && age <= 2*time.Second {
			released++
		}
	}
	for _, name := range list {
		at, ok := c.mu.at[name.(string)]
		if age := before.Sub(at); ok && age >= 0 && age <= 2*time.Second {
			taken++
		}
	}
	return released, taken
}
