package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The MinHold of a writer that was unlocked before its reader is over when the reader goes. While the
// slot moves nobody can see that, and what was left of the MinHold stayed as long as the reader's lease.
func TestAReaderLeavesNothingOfAMinHoldWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name   string
		moved  bool
		valkey bool // which names a key that is elsewhere in other words, like Redis from 8.0 on
	}{
		{name: "the lock is still there"},
		{name: "the lock is there already", moved: true},
		{name: "the lock is there already, on Valkey", moved: true, valkey: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			var opts []redistest.Option
			if x.valkey {
				opts = append(opts, redistest.OnValkey(t))
			}
			cluster := redistest.StartCluster(t, false, opts...)
			at := testkit.Clustered(cluster)
			e, other := at.Open(t), at.Open(t)
			const minHold = 100 * time.Millisecond
			w := testkit.MustLock(t, e.RWMutex("x").Writer(), engine.MinHold(minHold))
			began := cputime.Now()
			r, err := e.RWMutex("x").Reader().Lock(w.Context(testkit.Ctx(t)), engine.Lease(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			testkit.MustUnlock(t, w)
			testkit.Eventually(t, "the MinHold is over", func() bool { return began.Elapsed() > 2*minHold })

			slot, from, to := leaving(t, cluster, "x")
			if x.moved {
				cluster.MoveKeys(slot, from, to)
			}
			unlock := r.UnlockAsync()
			waits := other.RWMutex("x").Writer().LockAsync(testkit.Ctx(t))
			testkit.Pause(nil, 500*time.Millisecond)
			cluster.EndMove(slot, from, to)
			start := cputime.Now()
			if _, err := unlock.Await(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
			next, err := waits.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := start.Elapsed(); d > 3*time.Second {
				t.Errorf("granted %v after the move", d)
			}
			testkit.MustUnlock(t, next)
			at.Clean(t)
		})
	}
}

// The move may outlast the leases of those whose releases it refuses, while the hash has a longer one.
// Then they are released when it has ended: nobody else would do that.
func TestWhatIsRefusedForLongerThanItsLeaseIsReleasedWhenTheMoveEnds(t *testing.T) {
	t.Parallel()
	const longMove = 8 * time.Second // a lease, one more, 2 s, and some
	for _, x := range []struct {
		name  string
		begin func(t *testing.T, e, other *engine.Engine, move func()) (end func())
	}{
		{"the last reader beside what is left of a MinHold", func(t *testing.T, e, other *engine.Engine, move func()) func() {
			const minHold = 100 * time.Millisecond
			w := testkit.MustLock(t, e.RWMutex("x").Writer(), engine.MinHold(minHold))
			began := cputime.Now()
			r := testkit.MustReenterWith(t, w.Context(testkit.Ctx(t)), e.RWMutex("x").Reader())
			testkit.MustUnlock(t, w)
			long := testkit.MustLock(t, other.RWMutex("x").Reader(), engine.Lease(time.Hour))
			testkit.Eventually(t, "the MinHold is over", func() bool { return began.Elapsed() > 2*minHold })
			move()
			testkit.MustUnlock(t, long) // in doubt: the hash keeps the hour
			r.UnlockAsync()
			return func() {}
		}},
		{"a writer with a MinHold beside a reader", func(t *testing.T, e, _ *engine.Engine, move func()) func() {
			w := testkit.MustLock(t, e.RWMutex("x").Writer(), engine.MinHold(longMove+2*time.Second))
			r, err := e.RWMutex("x").Reader().Lock(w.Context(testkit.Ctx(t)), engine.Lease(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			move()
			w.UnlockAsync()
			return func() { testkit.MustUnlock(t, r) }
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, false)
			at := testkit.Clustered(cluster)
			e, other := at.Open(t, testkit.LeaseOf(time.Second)), at.Open(t)
			var slot int
			var from, to *redistest.Server
			end := x.begin(t, e, other, func() {
				slot, from, to = leaving(t, cluster, "x")
				if strings.HasPrefix(x.name, "the last reader") {
					cluster.MoveSome(slot, from, to, func(key string) bool { return key == "x" })
				}
			})
			testkit.Pause(nil, longMove)
			cluster.EndMove(slot, from, to)
			end()
			next, err := other.RWMutex("x").Writer().Lock(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			testkit.MustUnlock(t, next)
			at.Clean(t)
		})
	}
}

// The release of the last reader beside a MinHold is refused while the slot moves, and then nobody answers
// until the reader's lease is over, and longer. It is released when they do.
func TestWhatIsRefusedIsReleasedHoweverLongNobodyAnswersThen(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	at := testkit.Clustered(cluster)
	e, other := at.Open(t, testkit.LeaseOf(time.Second)), at.Open(t)
	const minHold = 100 * time.Millisecond
	w := testkit.MustLock(t, e.RWMutex("x").Writer(), engine.MinHold(minHold))
	began := cputime.Now()
	r := testkit.MustReenterWith(t, w.Context(testkit.Ctx(t)), e.RWMutex("x").Reader())
	testkit.MustUnlock(t, w)
	long := testkit.MustLock(t, other.RWMutex("x").Reader(), engine.Lease(time.Hour))
	testkit.Eventually(t, "the MinHold is over", func() bool { return began.Elapsed() > 2*minHold })
	slot, from, to := leaving(t, cluster, "x")
	cluster.MoveSome(slot, from, to, func(key string) bool { return key == "x" })
	testkit.MustUnlock(t, long) // in doubt: the hash keeps the hour
	nodes := cluster.Primaries()
	refused := func() (n int64) {
		for _, s := range nodes {
			n += s.CommandStats()["evalsha"]
		}
		return n
	}
	before := refused()
	r.UnlockAsync()
	testkit.Eventually(t, "it is refused", func() bool { return refused() > before+1 }) // and asked again
	for _, s := range nodes {
		s.Stop()
	}
	testkit.Pause(nil, 11*time.Second) // a lease, one more, 2 s, a command's time, and some
	for _, s := range nodes {
		s.Cont()
	}
	testkit.Pause(nil, time.Second) // what lies in the nodes' sockets is refused, too
	cluster.EndMove(slot, from, to)
	next, err := other.RWMutex("x").Writer().Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, next) // a timeout key of the hour may be left
}

// What is left of a MinHold can be taken away by its id, which State shows, although nobody can see
// whether it is over: the reader beside it stays, and leaves later.
func TestWhatIsLeftOfAMinHoldMayBeForcedWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	at := testkit.Clustered(cluster)
	e := at.Open(t)
	w := testkit.MustLock(t, e.RWMutex("x").Writer(), engine.MinHold(3*time.Second))
	r, err := e.RWMutex("x").Reader().Lock(w.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, w)
	s, err := e.RWMutex("x").State(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	var nobody string
	for _, h := range s.Holders {
		if h.ID != r.Owner() {
			nobody = h.ID
		}
	}
	testkit.Eventually(t, "the MinHold is over", func() bool {
		return cluster.Do("x", "EXISTS", "{x}:"+nobody+":rwlock_timeout:1") == int64(0)
	})

	slot, from, to := leaving(t, cluster, "x")
	if ok, err := e.RWMutex("x").Reader().ForceUnlock(testkit.Ctx(t), engine.IfHolder(nobody)); err != nil || !ok {
		t.Errorf("ForceUnlock of %q: %v, %v", nobody, ok, err)
	}
	testkit.MustUnlock(t, r)
	cluster.MoveKeys(slot, from, to)
	cluster.EndMove(slot, from, to)
	at.Clean(t)
}
