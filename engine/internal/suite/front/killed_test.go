package front

import (
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// wantNextSoon waits until a living engine has had the lock that was released then. If all in the front are dead,
// that takes a second: the last in the queue looks.
func (c *contest) wantNextSoon(released cputime.Mark) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the lock: %v; the queue: %v", c.at.Do("x", "HGETALL", "x"), c.queue())
		}
	}()
	testkit.Eventually(c.t, "a living engine has had it", func() bool { return c.grants.Load() > 0 })
	if d := released.Elapsed(); d > 2*time.Second {
		c.t.Errorf("the next has it after %v", d)
	}
}

// peer is a process of engines that wait for the lock. It ends when each has had its turn.
type peer struct {
	*testkit.Peer
	ended <-chan error
}

// startPeer starts a process, and waits until its n engines are in the queue.
func (c *contest) startPeer(t testing.TB, n int) *peer {
	t.Helper()
	before := len(c.queue())
	p := &peer{Peer: testkit.StartPeer(t, c.at.URL, n)}
	p.ended = testkit.Background(func() error { return p.Follow(func(string) {}) })
	c.awaitPlaces(before + n)
	return p
}

// bePeer is such a process.
func bePeer(t *testing.T, args []string) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		t.Fatal(err)
	}
	var engines []*engine.Engine
	for range n {
		engines = append(engines, testkit.Open(t, args[0]))
	}
	done := make(chan error, n)
	for _, e := range engines {
		go func() {
			h, err := e.Mutex("x").Lock(testkit.Within(t, limit))
			if err == nil {
				err = h.Unlock(testkit.Within(t, limit))
			}
			done <- err
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (p *peer) kill(t testing.TB) {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-p.ended
}

// Processes are killed while their engines wait: the connections die with them. The queue of each test
// is made of groups of engines, in this order: k is a process that is killed, w are engines that live.
func TestMutex_WaitersKilled_NextHasItSoon(t *testing.T) {
	if args := testkit.PeerArgs(); len(args) > 0 {
		bePeer(t, args)
		return
	}
	t.Parallel()
	type group struct {
		killed bool
		n      int
	}
	const k, w = true, false
	clustered := func(sharded string) func(testing.TB) *testkit.Site {
		return func(t testing.TB) *testkit.Site { return cluster(t, sharded) }
	}
	starts := map[string]func(testing.TB) *testkit.Site{
		"a cluster, sharded messages": clustered("auto"),
		"a cluster, plain messages":   clustered("off"), // nobody knows who hears there
	}
	for name, groups := range map[string][]group{
		"a cluster, sharded messages": {{k, 2 * places}, {w, 3}},
		"a cluster, plain messages":   {{k, 2 * places}, {w, 3}},
		"the first of the front":      {{k, 1}, {w, 8}},
		"the last of the front":       {{w, 3}, {k, 1}, {w, 4}},
		"the whole front":             {{k, places}, {w, 6}},
		"all but the last":            {{k, 12}, {w, 1}},
		"twenty of fifty":             {{k, 10}, {w, 5}, {k, 10}, {w, 25}},
		"twenty, front alive":         {{w, 6}, {k, 20}, {w, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				start := starts[name]
				if start == nil {
					start = func(t testing.TB) *testkit.Site { return single(t) }
				}
				c := newContest(t, start(t))
				h := testkit.MustLock(t, c.lock(c.open(1)[0]))
				var living []*waiter
				var doomed []*peer
				for _, g := range groups {
					if g.killed {
						doomed = append(doomed, c.startPeer(t, g.n))
					} else {
						living = append(living, c.line(c.open(g.n)...)...)
					}
				}
				for _, p := range doomed {
					p.kill(t)
				}
				testkit.MustUnlock(t, h)
				released := cputime.Now()
				c.wantNextSoon(released)
				c.wantServed(living...)
				t.Logf("all have had it after %v", released.Elapsed())
				c.wantOnlyTheDead()
			})
		})
	}
}

// The first look that finds the lock free drops all the dead before it: whoever comes later waits for no other look.
func TestMutex_FrontKilled_OneLookDropsTheDead(t *testing.T) {
	if args := testkit.PeerArgs(); len(args) > 0 {
		bePeer(t, args)
		return
	}
	t.Parallel()
	c := newContest(t, single(t))
	h := testkit.MustLock(t, c.lock(c.open(1)[0]))
	dead := c.startPeer(t, 2*places)
	list := c.line(c.open(places + 2)...)
	dead.kill(t)
	testkit.MustUnlock(t, h)
	c.wantServed(list...)
	c.at.Clean(t)
}
