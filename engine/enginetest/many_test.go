package enginetest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/enginetest"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// A server that is some forty times slower is not asked much more often: what a LockMany gives back and
// tries again does not grow with the time of a round.
func TestLockMany_OnTheEmbeddedServer_CostsNoMoreThanTwiceTheCommands(t *testing.T) {
	t.Parallel()
	real := transfers(t, enginetest.NewOn(t, redistest.Start(t).URL(), patient))
	here := transfers(t, enginetest.New(t, patient))
	t.Logf("%d commands on a real server, %d here", real, here)
	if here > 2*real {
		t.Errorf("%d commands, and %d on a real server", here, real)
	}
}

func patient(c *engine.Config) { c.Lease = time.Minute }

// transfers has workers take some of many accounts at once, and returns how many commands that costs.
func transfers(t *testing.T, env *enginetest.Env) uint64 {
	const workers, batches, accounts, each = 12, 4, 200, 20
	var all sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(1, uint64(w)))
		all.Go(func() {
			for range batches {
				var names []string
				for _, k := range rng.Perm(accounts)[:each] {
					names = append(names, fmt.Sprint("account", k))
				}
				h, err := env.Engine.LockMany(context.Background(), names)
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	return env.Engine.Stats().Commands
}
