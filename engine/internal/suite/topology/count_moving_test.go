package topology

import (
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// moveApart begins to move the slot of a count that two engines have changed, once with each sort of
// its keys first: the count is at one node and the marks of the engines are at the other.
func moveApart(t *testing.T, scenario func(t *testing.T, a, b *engine.Engine, begin, end func())) {
	for _, x := range []struct {
		name  string
		first func(key string) bool // these keys are moved first
	}{
		{"the count goes first", func(key string) bool { return key == "x" }},
		{"the marks go first", func(key string) bool { return key != "x" }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, false)
			at := testkit.Clustered(cluster)
			var slot int
			var from, to *redistest.Server
			scenario(t, at.Open(t), at.Open(t), func() {
				slot, from, to = leaving(t, cluster, "x")
				if n := cluster.MoveSome(slot, from, to, x.first); n != 1 && n != 2 {
					t.Fatalf("%d of 3 keys have stayed", n)
				}
			}, func() { cluster.EndMove(slot, from, to) })
		})
	}
}

// What is given back and what is asked for waits until the move has ended, and then counts once.
func TestASemaphoreOutlivesTheMigrationOfItsSlot(t *testing.T) {
	t.Parallel()
	moveApart(t, func(t *testing.T, a, b *engine.Engine, begin, end func()) {
		acquire := func(e *engine.Engine, n int) *engine.Future[*engine.Permits] {
			return e.Semaphore("x").AcquireAsync(t.Context(), n)
		}
		wantAvailable := func(want int) {
			t.Helper()
			if n, err := b.Semaphore("x").Available(testkit.Ctx(t)); n != want || err != nil {
				t.Errorf("%d permits are to be had, not %d: %v", n, want, err)
			}
		}
		give := func(f *engine.Future[*engine.Permits]) {
			t.Helper()
			if p, err := f.Await(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			} else if err := p.Release(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
		}
		if _, err := a.Semaphore("x").TrySetPermits(testkit.Ctx(t), 3); err != nil {
			t.Fatal(err)
		}
		give(acquire(b, 1))
		held, err := acquire(a, 2).Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		slept := acquire(b, 2)
		testkit.Eventually(t, "it listens", func() bool { return testkit.Client(b).Stats().ChannelsConfirmed == 1 })

		begin()
		back, fresh := held.ReleaseAsync(), acquire(a, 1) // nobody waits there
		stayApart(t)
		wantPending(t, "the release", back)
		wantPending(t, "one who slept", slept)
		wantPending(t, "one who came during the move", fresh)
		wantAvailable(1)
		end()
		if _, err := back.Await(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		for _, f := range []*engine.Future[*engine.Permits]{slept, fresh} {
			if _, err := f.Await(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
		}
		wantAvailable(0)
		give(slept)
		give(fresh)
		wantAvailable(3)
	})
}

// A CountDown waits until the move has ended, and then counts once. Who awaits the latch goes on
// waiting, and is told when it opens.
func TestALatchOutlivesTheMigrationOfItsSlot(t *testing.T) {
	t.Parallel()
	moveApart(t, func(t *testing.T, a, b *engine.Engine, begin, end func()) {
		wantCount := func(want int) {
			t.Helper()
			if n, err := b.Latch("x").Count(testkit.Ctx(t)); n != want || err != nil {
				t.Errorf("the count is %d, not %d: %v", n, want, err)
			}
		}
		if _, err := a.Latch("x").TrySetCount(testkit.Ctx(t), 4); err != nil {
			t.Fatal(err)
		}
		if err := b.Latch("x").CountDown(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		slept := b.Latch("x").AwaitAsync(t.Context())
		testkit.Eventually(t, "it listens", func() bool { return testkit.Client(b).Stats().ChannelsConfirmed == 1 })

		begin()
		var downs []<-chan error
		for _, e := range []*engine.Engine{a, b} {
			downs = append(downs, testkit.Background(func() error { return e.Latch("x").CountDown(t.Context()) }))
		}
		fresh := a.Latch("x").AwaitAsync(t.Context())
		stayApart(t)
		for _, down := range downs {
			select {
			case err := <-down:
				t.Fatalf("CountDown during the move: %v", err)
			default:
			}
		}
		wantCount(3)
		end()
		for _, down := range downs {
			if err := testkit.Receive(t, down); err != nil {
				t.Error(err)
			}
		}
		wantCount(1)
		wantPending(t, "one who slept", slept)
		wantPending(t, "one who came during the move", fresh)
		if err := a.Latch("x").CountDown(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		for _, f := range []*engine.Future[struct{}]{slept, fresh} {
			if _, err := f.Await(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
		}
		wantCount(0)
	})
}
