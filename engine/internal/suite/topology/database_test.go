package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// From Valkey 9 on a cluster may have more databases than one. Locks are then in the one that is named:
// also those whose slot is being moved, or has moved, while nobody has told the engine.
func TestLock_DatabaseOfACluster_IsThere(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false, redistest.Needs(redistest.ClusterDatabases), redistest.Line("cluster-databases 16"))
	url := strings.TrimSuffix(c.URL(), "/") + "/5"
	e, other := testkit.Open(t, url), testkit.Open(t, url)
	elsewhere := testkit.Open(t, c.URL())
	for i := range 30 { // of all nodes
		name := fmt.Sprint("x", i)
		h := testkit.MustLock(t, e.Mutex(name))
		if _, err := other.Mutex(name).TryLock(testkit.Ctx(t)); err == nil {
			t.Errorf("%s is locked twice", name)
		}
		testkit.MustUnlock(t, testkit.MustLock(t, elsewhere.Mutex(name)))
		waits := other.Mutex(name).LockAsync(testkit.Ctx(t))
		testkit.MustUnlock(t, h)
		next, err := waits.Await(testkit.Within(t, 5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, next)
	}

	slot := c.Slot("moves")
	from := c.AwaitOwner(slot)
	to := c.Primaries()[0]
	if to == from {
		to = c.Primaries()[1]
	}
	c.BeginMove(slot, from, to) // ASK: it is not there yet
	kept := testkit.MustLock(t, e.Mutex("moves"), engine.Lease(time.Minute))
	if !strings.Contains(to.Info("INFO", "keyspace"), "db5:keys=") {
		t.Errorf("the lock is in another database: %s", to.Info("INFO", "keyspace"))
	}
	c.EndMove(slot, from, to) // MOVED
	if _, err := other.Mutex("moves").TryLock(testkit.Ctx(t)); err == nil {
		t.Error("it is locked twice")
	}
	testkit.MustUnlock(t, kept)
}
