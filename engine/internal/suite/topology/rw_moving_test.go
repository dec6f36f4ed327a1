package topology

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// While a slot is migrated, the hash of a read-write lock may be at one node and the timeout
// keys of its readers at the other. Readers stay what they are, and are renewed key by key; a
// reader that leaves does not take the others for dead; and a writer waits.
func TestReadersOutliveTheMigrationOfTheirSlot(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		first func(key string) bool // these keys are moved first
	}{
		{"the hash goes first", func(key string) bool { return key == "x" }},
		{"the timeout keys go first", func(key string) bool { return key != "x" }},
		{"one timeout key stays", func(key string) bool { return !strings.HasPrefix(key, "{x}") }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				cluster := redistest.StartCluster(t, false)
				at := testkit.Clustered(cluster)
				lease := testkit.LeaseOf(2 * time.Second)
				a, b := at.Open(t, lease), at.Open(t, lease)
				l := a.RWMutex("x")
				held := []*engine.Hold{testkit.MustLock(t, l.Reader()), testkit.MustLock(t, b.RWMutex("x").Reader()), testkit.MustLock(t, l.Reader())}
				long := testkit.MustLock(t, l.Reader(), engine.Lease(8*time.Second))
				w := testkit.MustLock(t, a.RWMutex("w{x}").Writer())
				beside, err := a.RWMutex("w{x}").Reader().Lock(w.Context(testkit.Ctx(t)))
				if err != nil {
					t.Fatal(err)
				}

				slot := cluster.Slot("x")
				from := cluster.AwaitOwner(slot)
				to := cluster.Primaries()[0]
				if to == from {
					to = cluster.Primaries()[1]
				}
				cluster.BeginMove(slot, from, to)
				left := cluster.MoveSome(slot, from, to, x.first)
				testkit.MustUnlock(t, long) // whose time the hash had; its timeout key may stay until that is over
				testkit.MustUnlock(t, held[0])
				testkit.MustUnlock(t, w)
				waits := b.RWMutex("x").Writer().LockAsync(t.Context())
				stayApart(t)
				for i, h := range append(held[1:], beside) {
					if h.Err() != nil {
						t.Errorf("reader %d: %v (%d keys stayed)", i, h.Err(), left)
					}
				}
				if _, err := waits.Result(); !errors.Is(err, engine.ErrPending) {
					t.Errorf("a writer beside readers: %v", err)
				}
				for _, m := range []engine.Mutex{l.Writer(), a.RWMutex("w{x}").Writer()} {
					if h, err := m.TryLock(testkit.Ctx(t)); err == nil {
						t.Errorf("a writer beside readers: %v", h)
					}
				}
				cluster.EndMove(slot, from, to)
				for _, h := range append(held[1:], beside) {
					testkit.MustUnlock(t, h)
				}
				h, err := waits.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				testkit.MustUnlock(t, h)
				at.Clean(t)
			})
		})
	}
}

// A reader is granted only where all keys are at one node, and Downgrade is like TryLock. So it fails
// after CommandTimeout, the writer goes on as before, and it can be downgraded when the move has ended.
func TestAWriterOutlivesTheMigrationOfItsSlotAndIsDowngradedLater(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		first func(key string) bool // these keys are moved first
	}{
		{"the hash stays", func(string) bool { return false }},
		{"the hash has gone", func(string) bool { return true }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				cluster := redistest.StartCluster(t, false)
				at := testkit.Clustered(cluster)
				lease := testkit.LeaseOf(3 * time.Second)
				a, b := at.Open(t, lease), at.Open(t, lease)
				l := a.RWMutex("x")
				w := testkit.MustLock(t, l.Writer())
				waits := b.RWMutex("x").Reader().LockAsync(t.Context())
				slot, from, to := leaving(t, cluster, "x")
				cluster.MoveSome(slot, from, to, x.first)
				refused := func() {
					t.Helper()
					began := cputime.Now()
					_, err := l.Downgrade(testkit.Ctx(t), w)
					if !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrUnavailable) || !testkit.HasText(err, "TRYAGAIN") {
						t.Errorf("Downgrade during the move: %v", err)
					}
					if d := began.Elapsed(); d > 5*time.Second {
						t.Errorf("it failed after %v", d)
					}
				}

				refused()
				stayApart(t)
				refused()
				if w.Err() != nil {
					t.Fatalf("the writer: %v", w.Err())
				}
				wantPending(t, "a reader beside a writer", waits)
				cluster.EndMove(slot, from, to)
				r, err := l.Downgrade(testkit.Ctx(t), w)
				if err != nil {
					t.Fatal(err)
				}
				if !errors.Is(w.Err(), engine.ErrReleased) || r.Err() != nil {
					t.Errorf("the writer: %v; the reader: %v", w.Err(), r.Err())
				}
				beside, err := waits.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				testkit.MustUnlock(t, beside)
				testkit.MustUnlock(t, r)
				at.Clean(t)
			})
		})
	}
}
