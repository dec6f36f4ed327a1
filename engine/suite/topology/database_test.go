package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// From Valkey 9 on a cluster may have more databases than one. Locks are then in the one that is named:
// also those whose slot is being moved, or has moved, while nobody has told the engine.
func TestLock_DatabaseOfACluster_IsThere(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false, redistest.Needs(redistest.ClusterDatabases), redistest.Line("cluster-databases 16"))
	url := strings.TrimSuffix(c.URL(), "/") + "/5"
	e, other := kit.Open(t, url), kit.Open(t, url)
	elsewhere := kit.Open(t, c.URL())
	for i := range 30 { // of all nodes
		name := fmt.Sprint("x", i)
		h := kit.MustLock(t, e.Mutex(name))
		if _, err := other.Mutex(name).TryLock(kit.Ctx(t)); err == nil {
			t.Errorf("%s is locked twice", name)
		}
		kit.MustUnlock(t, kit.MustLock(t, elsewhere.Mutex(name)))
		waits := other.Mutex(name).LockAsync(kit.Ctx(t))
		kit.MustUnlock(t, h)
		next, err := waits.Await(kit.Within(t, 5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		kit.MustUnlock(t, next)
	}

	slot := c.Slot("moves")
	from := c.AwaitOwner(slot)
	to := c.Primaries()[0]
	if to == from {
		to = c.Primaries()[1]
	}
	c.BeginMove(slot, from, to) // ASK: it is not there yet
	kept := kit.MustLock(t, e.Mutex("moves"), engine.Lease(time.Minute))
	if !strings.Contains(to.Info("INFO", "keyspace"), "db5:keys=") {
		t.Errorf("the lock is in another database: %s", to.Info("INFO", "keyspace"))
	}
	c.EndMove(slot, from, to) // MOVED
	if _, err := other.Mutex("moves").TryLock(kit.Ctx(t)); err == nil {
		t.Error("it is locked twice")
	}
	kit.MustUnlock(t, kept)
}
