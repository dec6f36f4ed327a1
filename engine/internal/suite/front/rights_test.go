package front

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// limited are users who lack a right that the queue needs. They wait without it, and only race.
var limited = map[string]string{
	"no key of a queue":     "~x &* +@all",
	"no channel of its own": "~* resetchannels &" + channel + " +@all",
	"no channel at a queue": "~x resetchannels &" + channel + " +@all",
	"no ZADD":               "~* &* +@all -zadd",
	"no ZRANK":              "~* &* +@all -zrank",
}

// of opens engines of the user whom the server limits.
func of(c *contest, n int) []*engine.Engine {
	return c.open(n, func(cfg *engine.Config) { cfg.Username, cfg.Password = "limited", "secret" })
}

func limitedServer(t testing.TB, rights string) *testkit.Site {
	t.Helper()
	return single(t, redistest.User("default on nopass ~* &* +@all"), redistest.User("limited on >secret "+rights))
}

// First there are only engines without the rights. Then others with the rights want the lock all the time, too,
// twice as many as the front has places.
func TestMutex_NoRightToTheQueue_HasTurnsAsOthers(t *testing.T) {
	t.Parallel()
	for name, rights := range limited {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContest(t, limitedServer(t, rights))
			const rounds = 5
			few := of(c, 4)
			c.loop(rounds, few...)
			c.grants.Store(0)
			all := append(few, c.open(2*places)...)
			ctx, stop := context.WithCancel(testkit.Within(t, limit))
			defer stop()
			var hungry atomic.Int32
			hungry.Store(int32(len(all)))
			var loops sync.WaitGroup
			for _, e := range all {
				loops.Go(func() {
					for n := 1; hungry.Load() > 0; n++ {
						if _, err := c.turn(ctx, e); err != nil {
							t.Errorf("turn %d of %s: %v", n, e.ID(), err)
							return
						}
						if n == rounds {
							hungry.Add(-1)
						}
					}
				})
			}
			loops.Wait()
			t.Logf("%d turns, until each had %d", c.grants.Load(), rounds)
			c.wantOnlyTheDead()
		})
	}
}
