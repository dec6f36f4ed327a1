package front

import (
	"context"
	"os"
	"strconv"
	"strings"
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

// The rights that the manual tells users to grant are enough to take the lock, and the places of those that have died.
func TestMutex_DocumentedRights_FrontThatDiedLosesItsPlaces(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	const start = "ACL SETUSER pawl on >secret "
	_, rights, found := strings.Cut(string(page), start)
	if rights, _, _ = strings.Cut(rights, "\n"); !found {
		t.Fatalf("the manual has no %q", start)
	}
	for name, dead := range map[string]int{"the first": 1, "all of the front": places} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContest(t, limitedServer(t, strings.ReplaceAll(rights, "orders:*", "x*")))
			h := testkit.MustLock(t, c.lock(c.open(1)[0]))
			for i := range dead { // 7/8: it has been overtaken often
				c.at.Do(queue, "ZADD", queue, strconv.Itoa(i)+".875", "dead"+strconv.Itoa(i))
			}
			all := of(c, 2)
			list := c.line(all...)
			c.at.Do(queue, "PEXPIRE", queue, "60000")
			testkit.MustUnlock(t, h)
			c.wantServed(list...)
			if left := c.queue(); len(left) != 0 {
				t.Errorf("left in the queue: %v", left)
			}
			for _, e := range all {
				if n := e.Stats().Compensations; n != 0 {
					t.Errorf("%d compensations: a try was refused that had the lock", n)
				}
			}
			c.at.Clean(t)
		})
	}
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
