package front

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A release wakes the front, however many engines wait. Those behind come in their order, and those in the front are
// overtaken a few times at most.
func TestMutex_TwentyEngines_HandOverCostsAFew(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *testkit.Site{
		"one server":                  func(t *testing.T) *testkit.Site { return single(t) },
		"a cluster, sharded messages": func(t *testing.T) *testkit.Site { return cluster(t, "auto") },
		"a cluster, plain messages":   func(t *testing.T) *testkit.Site { return cluster(t, "off") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			costsAFew(t, start(t), mutex, 20)
		})
	}
}

// One engine is some milliseconds away. It has its turn when it is the first, although the others hear of
// each release before it does, and however few they are.
func TestMutex_FarFromTheServer_HasItsTurns(t *testing.T) {
	t.Parallel()
	for _, near := range []int{1, 6} {
		t.Run(fmt.Sprint(near), func(t *testing.T) {
			t.Parallel()
			farHasItsTurns(t, near)
		})
	}
}

func farHasItsTurns(t *testing.T, n int) {
	s := testkit.Server(t)
	p := faultproxy.New(t, "tcp", s.Addr())
	c := newContest(t, testkit.Single(s))
	near := c.open(n)
	c.at.URL = "redis://" + p.Addr()
	far := c.open(1)[0]
	p.Delay(faultproxy.All, 2*time.Millisecond, 2*time.Millisecond)
	over := make(chan struct{})
	var loops sync.WaitGroup
	for _, e := range near {
		loops.Go(func() {
			for testkit.Pause(over, 0) {
				if _, err := c.turn(testkit.Within(t, limit), e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	const turns = 10
	before := c.grants.Load()
	for range turns {
		if _, err := c.turn(testkit.Within(t, limit), far); err != nil {
			t.Error(err)
			break
		}
	}
	others := (c.grants.Load()-before)/turns - 1
	t.Logf("%d turns of others for each of its own", others)
	if others > 100 { // 13 to 17, and on a busy machine more
		t.Errorf("%d turns of others for each of its own", others)
	}
	close(over)
	loops.Wait()
	p.Delay(faultproxy.All, 0, 0)
	c.at.Clean(t)
}

// costsAFew has twenty engines take the lock again and again.
func costsAFew(t *testing.T, at *testkit.Site, lock func(*engine.Engine) engine.Mutex, rounds int) {
	const engines = 20
	c := newContest(t, at)
	c.lock = lock
	all := c.open(engines)
	before := at.Commands()
	worst := c.loop(rounds, all...)
	used := at.Commands()
	per := func(commands ...string) (sum float64) {
		for _, name := range commands {
			sum += float64(used[name]-before[name]) / float64(engines*rounds)
		}
		return sum
	}
	scripts := per("evalsha", "eval")
	subscriptions := per("subscribe", "ssubscribe", "unsubscribe", "sunsubscribe")
	t.Logf("a hand-over: %.1f scripts, %.1f subscriptions; overtaken %d times at most", scripts, subscriptions, worst)
	if scripts > 10 || subscriptions > 6 {
		t.Errorf("a hand-over costs %.1f scripts and %.1f subscriptions", scripts, subscriptions)
	}
	// At the server it is 4 times at most (see TestJoin_FrontRaces_NobodyIsOvertakenOften). On a busy machine a
	// goroutine comes late to send its join, which adds a round or so.
	if worst > 5*engines {
		t.Errorf("one engine was overtaken %d times while it waited", worst)
	}
	if n := c.grants.Load(); n != int64(engines*rounds) {
		t.Errorf("%d grants", n)
	}
	at.Do(tokens, "DEL", tokens)
	at.Clean(t)
}
