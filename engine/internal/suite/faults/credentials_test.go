package faults

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Tokens rotate: each time the server ends all connections and refuses the old token, and whoever
// hands the new one out is late. No hold may be lost for that. PAWL_ROTATIONS=5m has the last case
// take as long.
func TestCredentials_RotateAndComeLate_LoseNoHold(t *testing.T) {
	t.Parallel()
	long, err := time.ParseDuration(cmp.Or(os.Getenv("PAWL_ROTATIONS"), "10s"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lease, every, late time.Duration
		holds, rotations   int
	}{
		{3 * time.Second, 4 * time.Second, 1200 * time.Millisecond, 50, 2},
		{1200 * time.Millisecond, 2 * time.Second, 400 * time.Millisecond, 20, 4},
		{10 * time.Second, 5 * time.Second, 3 * time.Second, 200, int(long / (5 * time.Second))},
	} {
		t.Run(fmt.Sprintf("lease=%v,late=%v", c.lease, c.late), func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				s := redistest.Start(t)
				p := faultproxy.New(t, "tcp", s.Addr())
				s.Do("ACL", "SETUSER", "app", "reset", "on", ">token0", "~*", "&*", "+@all")
				var cached, asked atomic.Int64
				e := testkit.Open(t, "redis://"+p.Addr(), func(cfg *engine.Config) {
					cfg.Lease = c.lease
					cfg.Credentials = func(context.Context) (string, string, error) {
						asked.Add(1)
						return "app", fmt.Sprint("token", cached.Load()), nil
					}
				})
				ctx := testkit.Within(t, long+time.Minute)
				var holds []*engine.Hold
				for i := range c.holds {
					h, err := e.Mutex(fmt.Sprint("held", i)).Lock(ctx)
					if err != nil {
						t.Fatal(err)
					}
					holds = append(holds, h)
				}
				for n := range int64(c.rotations) {
					s.Do("ACL", "SETUSER", "app", "resetpass", fmt.Sprint(">token", n+1))
					p.Cut(faultproxy.All)
					testkit.Pause(nil, c.late*time.Duration(1+n%2)/2)
					cached.Store(n + 1)
					if _, err := e.Mutex(fmt.Sprint("fresh", n)).Lock(ctx, engine.Lease(c.lease), engine.Wait(c.every)); err != nil {
						t.Errorf("after rotation %d: %v", n+1, err)
					}
					testkit.Pause(nil, c.every-c.late)
				}
				lost := 0
				for _, h := range holds {
					if h.Err() != nil {
						lost++
					}
				}
				if lost > 0 {
					t.Errorf("%d of %d holds were lost: %v", lost, c.holds, e.Stats().Lost)
				}
				t.Logf("%d rotations, asked %d times", c.rotations, asked.Load())
			})
		})
	}
}
