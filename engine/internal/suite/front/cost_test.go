package front

import (
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A release wakes the front, however many engines wait. Nobody in the queue is overtaken without bound: those
// behind come in their order, and of the front everybody has the same chance.
func TestMutex_TwentyEngines_HandOverCostsAFew(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *testkit.Site{
		"one server":                  func(t *testing.T) *testkit.Site { return single(t) },
		"a cluster, sharded messages": func(t *testing.T) *testkit.Site { return cluster(t, "auto") },
		"a cluster, plain messages":   func(t *testing.T) *testkit.Site { return cluster(t, "off") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// One that starves is overtaken by all rounds of the others, 380: more than may be.
			costsAFew(t, start(t), mutex, 20)
		})
	}
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
	if worst > 15*engines {
		t.Errorf("one engine was overtaken %d times while it waited", worst)
	}
	if n := c.grants.Load(); n != int64(engines*rounds) {
		t.Errorf("%d grants", n)
	}
	at.Do(tokens, "DEL", tokens)
	at.Clean(t)
}
