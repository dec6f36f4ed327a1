package durability

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// What all replicas have acknowledged keeps the promise of its kind over a failover on command:
// nobody beside a holder or a writer, no more permits than there are, tokens that rise.
func TestAcknowledgedSynchronizersOfEveryKindSurviveFailovers(t *testing.T) {
	t.Parallel()
	failovers, _, _ := failoversOnCommand(t)
	for name, start := range map[string]func(t *testing.T, replicas int) *failover{
		"sentinel": sentinelFailover, "cluster": clusterFailover, "cluster, takeover": takeoverFailover, "replicas": replicasFailover,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, 1)
			s.calm()
			engines := [2]*engine.Engine{}
			for i := range engines {
				engines[i] = testkit.Open(t, s.url, func(c *engine.Config) { c.Replicas = engine.AllReplicas })
			}
			if err := engines[0].PermitSemaphore(s.tag+"permit").SetPermits(testkit.Ctx(t), 3); err != nil {
				t.Fatal(err)
			}
			guards := guardsOf(t, s.tag)
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var users sync.WaitGroup
			for _, e := range engines {
				for _, g := range guards {
					for range 3 {
						users.Go(func() { g.use(ctx, e) })
					}
				}
			}
			goOn := func(what string) {
				for _, g := range guards {
					before := g.sections.Load()
					testkit.Eventually(t, fmt.Sprint(g.name, " goes on, ", what), func() bool { return g.sections.Load() >= before+20 })
				}
			}
			goOn("at first")
			for round := range failovers {
				s.calm()
				s.begin()
				goOn(fmt.Sprint("after failover ", round))
			}
			stop()
			users.Wait()
			for _, g := range guards {
				t.Logf("%s: %d sections, %d tries without one, %d lost", g.name, g.sections.Load(), g.failed.Load(), g.lost.Load())
			}
		})
	}
}

// guard checks the promise of one name. Whoever is inside is so for much less than the margin.
type guard struct {
	t                      *testing.T
	name                   string
	most                   int64 // how many may be inside
	take                   func(ctx context.Context, e *engine.Engine) (*engine.Hold, error)
	shared                 *atomic.Int64 // those inside who must not be beside these; nil: there are none
	inside                 atomic.Int64
	token                  atomic.Int64 // the latest
	sections, failed, lost atomic.Int64
}

func guardsOf(t *testing.T, tag string) []*guard {
	write := &guard{t: t, name: "write", most: 1, take: func(ctx context.Context, e *engine.Engine) (*engine.Hold, error) {
		return e.RWMutex(tag + "rw").Writer().Lock(ctx)
	}}
	read := &guard{t: t, name: "read", most: 6, shared: &write.inside, take: func(ctx context.Context, e *engine.Engine) (*engine.Hold, error) {
		return e.RWMutex(tag + "rw").Reader().Lock(ctx)
	}}
	write.shared = &read.inside
	return []*guard{write, read,
		{t: t, name: "mutex", most: 1, take: func(ctx context.Context, e *engine.Engine) (*engine.Hold, error) {
			return e.Mutex(tag + "mutex").Lock(ctx)
		}},
		{t: t, name: "fair", most: 1, take: func(ctx context.Context, e *engine.Engine) (*engine.Hold, error) {
			return e.FairMutex(tag + "fair").Lock(ctx)
		}},
		{t: t, name: "fenced", most: 1, take: func(ctx context.Context, e *engine.Engine) (*engine.Hold, error) {
			return e.FencedMutex(tag + "fenced").Lock(ctx)
		}},
		{t: t, name: "permit", most: 3, take: func(ctx context.Context, e *engine.Engine) (*engine.Hold, error) {
			return e.PermitSemaphore(tag+"permit").Acquire(ctx, 1)
		}},
	}
}

func (g *guard) use(ctx context.Context, e *engine.Engine) {
	for ctx.Err() == nil {
		patient, cancel := context.WithTimeout(ctx, 5*time.Second)
		h, err := g.take(patient, e)
		cancel()
		if err != nil {
			g.failed.Add(1)
			testkit.Pause(ctx.Done(), 50*time.Millisecond)
			continue
		}
		n, beside := g.inside.Add(1), int64(0)
		if g.shared != nil {
			beside = g.shared.Load()
		}
		if h.Err() == nil && (n > g.most || beside > 0) {
			g.t.Errorf("%s: %d inside, and %d that must not be beside them", g.name, n, beside)
		}
		if g.name == "fenced" {
			if before := g.token.Swap(h.Token()); h.Token() <= before && h.Err() == nil {
				g.t.Errorf("the token is %d after %d", h.Token(), before)
			}
		}
		testkit.Pause(ctx.Done(), 4*time.Millisecond)
		g.inside.Add(-1)
		g.sections.Add(1)
		if err := h.Unlock(context.Background()); errors.Is(err, engine.ErrLost) {
			g.lost.Add(1)
		}
		testkit.Pause(ctx.Done(), 4*time.Millisecond) // it leaves something of the machine to the others
	}
}
