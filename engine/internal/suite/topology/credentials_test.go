package topology

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// A database that the URL names is the one that the locks are in, on the server that a
// failover makes the primary, too; others do not see them.
func TestLocksAreInTheDatabaseOfTheURL(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func() *redistest.Replicated{
		"replicas": func() *redistest.Replicated { return redistest.StartReplicated(t, 1) },
		"sentinel": func() *redistest.Replicated { return redistest.StartSentinel(t) },
	} {
		r := start()
		e, other := testkit.Open(t, r.URL()+"/3"), testkit.Open(t, r.URL())
		keys := func() string { return r.Primary().Info("INFO", "keyspace") }
		h := testkit.MustLock(t, e.Mutex("x"))
		testkit.MustUnlock(t, testkit.MustLock(t, other.Mutex("x")))
		if got := keys(); !strings.Contains(got, "db3:keys=1,") || strings.Contains(got, "db0:") {
			t.Errorf("%s: %s", name, got)
		}
		testkit.MustUnlock(t, h)
		r.AwaitInStep()
		before := r.Primary()
		if name == "sentinel" {
			r.Failover()
		} else {
			r.Promote(r.Servers()[1])
		}
		// What is locked before that may be lost with the former primary.
		testkit.Eventually(t, "both are at the new primary", func() bool {
			now := r.Primary()
			return now != before && testkit.Client(e).AddrOf(0) == now.Addr() && testkit.Client(other).AddrOf(0) == now.Addr()
		})
		h = testkit.MustLock(t, e.Mutex("x"))
		testkit.MustUnlock(t, testkit.MustLock(t, other.Mutex("x")))
		if got := keys(); !strings.Contains(got, "db3:keys=1,") || strings.Contains(got, "db0:") {
			t.Errorf("%s, after a failover: %s", name, got)
		}
		testkit.MustUnlock(t, h)
	}
}

// Sentinels may have another password than the servers. If one is
// given to the other, the error says which is wrong.
func TestSentinelsHaveCredentialsOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t, redistest.Password("lock"), redistest.SentinelPassword("guard"))
	testkit.Open(t, r.URL())
	for what, c := range map[string]struct {
		old, new string
		sentinel bool
	}{
		"no password for the sentinels":  {"?sentinel_password=guard", "", true},
		"the servers' for the sentinels": {"sentinel_password=guard", "sentinel_password=lock", true},
		"the sentinels' for the servers": {":lock@", ":guard@", false},
	} {
		ctx := testkit.Within(t, 2*time.Second)
		_, err := engine.Open(ctx, strings.Replace(r.URL(), c.old, c.new, 1))
		var refused *resp.ServerError
		if !errors.Is(err, engine.ErrUnavailable) || !errors.As(err, &refused) || errors.Is(err, resp.ErrSentinelAuth) != c.sentinel {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Where a cluster has one database, it is the server that says so. See also
// TestLock_DatabaseOfACluster_IsThere.
func TestOpen_DatabaseThatTheClusterLacks_IsTheServersToRefuse(t *testing.T) {
	t.Parallel()
	if redistest.Can(redistest.ClusterDatabases) {
		t.Skip("a cluster of this server has several databases: TestLock_DatabaseOfACluster_IsThere tests them")
	}
	_, err := engine.Open(t.Context(), redistest.StartCluster(t, false).URL()+"/3?dial_timeout=1m")
	if refused := (*resp.ServerError)(nil); !errors.As(err, &refused) || !strings.Contains(refused.Message, "SELECT is not allowed") {
		t.Fatalf("Open: %v", err)
	}
}
