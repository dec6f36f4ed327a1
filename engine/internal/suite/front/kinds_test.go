package front

import (
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// tokens is the counter of the fencing tokens, which stays.
const tokens = "redisson_lock_token:{x}"

// A FencedMutex queues as a Mutex does, and its grants have rising tokens.
func TestFencedMutex_TwentyEngines_HandOverCostsAFew(t *testing.T) {
	t.Parallel()
	costsAFew(t, single(t), fenced, 20)
}

// Each grant has a higher token than all before it, with the acknowledgement of a replica or without.
func TestMutex_FencedAndAcked_NobodyIsLost(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		lock    func(*engine.Engine) engine.Mutex
		options []engine.Option
	}{
		"fenced":       {fenced, nil},
		"acked":        {mutex, []engine.Option{engine.Acked(1)}},
		"fenced acked": {fenced, []engine.Option{engine.Acked(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const engines, rounds = 10, 10
			c := newContest(t, testkit.Replicated(redistest.StartReplicated(t, 1)))
			var latest int64 // under the lock
			var all sync.WaitGroup
			ctx := testkit.Within(t, limit)
			for _, e := range c.open(engines) {
				all.Go(func() {
					for i := range rounds {
						h, err := x.lock(e).Lock(ctx, x.options...)
						if err != nil {
							t.Errorf("turn %d of %s: %v", i, e.ID(), err)
							return
						}
						if c.inside.Add(1) != 1 {
							t.Error("two have it")
						}
						if h.Acked() < len(x.options) {
							t.Errorf("acknowledged by %d", h.Acked())
						}
						if token := h.Token(); token <= latest && name != "acked" {
							t.Errorf("token %d after %d", token, latest)
						}
						latest = h.Token()
						c.inside.Add(-1)
						if err := h.Unlock(ctx); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			c.at.Do(tokens, "DEL", tokens)
			c.at.Clean(t)
		})
	}
}

// A LockMany, and a RedLock of one server, wait in the queue of one lock at a time, beside engines that want that
// lock alone.
func TestLockMany_BesideMutexes_BothHaveTurns(t *testing.T) {
	t.Parallel()
	c := newContest(t, single(t))
	ctx := testkit.Within(t, limit)
	var all sync.WaitGroup
	many := func(what string, take func() (*engine.Hold, error)) {
		all.Go(func() {
			for i := range 10 {
				h, err := take()
				if err != nil {
					t.Errorf("turn %d of %s: %v", i, what, err)
					return
				}
				if c.inside.Add(1) != 1 {
					t.Error("two have it")
				}
				c.inside.Add(-1)
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, e := range c.open(3) {
		many("LockMany", func() (*engine.Hold, error) { return e.LockMany(ctx, []string{"w", "x", "y"}) })
	}
	for _, e := range c.open(3) {
		many("RedLock", func() (*engine.Hold, error) { return engine.RedLock(e.Mutex("x")).Lock(ctx) })
	}
	c.loop(10, c.open(6)...)
	all.Wait()
	c.at.Clean(t)
}
