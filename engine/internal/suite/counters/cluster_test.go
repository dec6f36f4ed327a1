package counters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The mark and the channel are in the slot of the count, or the name is refused at once.
func TestNamesInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	e := testkit.Clustered(c).Open(t)
	for name, ok := range map[string][2]bool{ // of a semaphore, of a latch
		"plain": {true, true}, "a{b}": {true, false}, "{b}": {true, false}, "a{b}{": {true, false},
		"a{b": {false, false}, "{}a": {false, false}, "a}b": {false, false}, "a}b{c}": {true, false},
	} {
		s, l := e.Semaphore(name), e.Latch(name)
		_, err := s.TrySetPermits(testkit.Ctx(t), 2)
		if ok[0] != (err == nil) || !ok[0] && !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%q: SetPermits: %v", name, err)
		}
		if ok[0] {
			if err := testkit.MustAcquire(t, s, 2).Release(testkit.Ctx(t)); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
		c.Do(name, "DEL", name)
		_, err = l.TrySetCount(testkit.Ctx(t), 1)
		if ok[1] != (err == nil) || !ok[1] && !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%q: TrySetCount: %v", name, err)
		}
		if ok[1] {
			if err := l.CountDown(testkit.Ctx(t)); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

// While slots move from node to node, again and again, nothing is lost, nothing is made, and
// nobody sleeps for ever.
func TestNoPermitIsLostWhileSlotsMove(t *testing.T) {
	t.Parallel()
	for _, sharding := range []string{"on", "off"} {
		t.Run(sharding, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, false, redistest.Needs(redistest.ShardedChannels))
			at := testkit.Clustered(c)
			var engines []*engine.Engine
			for range 2 {
				engines = append(engines, at.Open(t, func(cfg *engine.Config) { cfg.ShardedPubSub = sharding }))
			}
			const permits = 3
			testkit.MustSetPermits(t, engines[0].Semaphore("s"), permits)
			stop, done := make(chan struct{}), 0
			var all sync.WaitGroup
			var mu sync.Mutex
			for i := range 12 {
				s := engines[i%2].Semaphore("s")
				all.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						p, err := s.Acquire(context.Background(), 1+i%2)
						if err != nil {
							t.Error(err)
							return
						}
						if err := p.Release(context.Background()); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						done++
						mu.Unlock()
					}
				})
			}
			slot := c.Slot("s")
			for range 4 {
				from := c.AwaitOwner(slot)
				for _, to := range c.Primaries() {
					if to != from {
						c.BeginMove(slot, from, to)
						testkit.Pause(nil, 50*time.Millisecond)
						c.MoveKeys(slot, from, to)
						testkit.Pause(nil, 50*time.Millisecond)
						c.EndMove(slot, from, to)
						break
					}
				}
			}
			close(stop)
			all.Wait()
			if got := fmt.Sprint(c.Do("s", "GET", "s")); got != fmt.Sprint(permits) {
				t.Errorf("%s permits, of %d", got, permits)
			}
			t.Logf("%d rounds", done)
		})
	}
}
