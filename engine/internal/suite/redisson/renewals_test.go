package redisson

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// T32: in Redisson a reader that leaves takes a renewal of its writer with it. Here the writer is
// renewed as before, for as long as it lasts.
func TestAReaderThatLeavesItsWriterStopsNoRenewal(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			const lease = 600 * time.Millisecond
			e := testkit.Open(t, s.URL(), testkit.LeaseOf(lease))
			l := e.RWMutex("L")
			w := testkit.MustLock(t, l.Writer())
			for range 3 {
				testkit.MustUnlock(t, testkit.MustReenterWith(t, w.Context(testkit.Ctx(t)), l.Reader()))
			}
			left := cputime.Now()
			renewed := e.Stats().Renewed
			testkit.Eventually(t, "five leases have passed", func() bool {
				if err := w.Err(); err != nil {
					t.Fatalf("after %v: %v", left.Elapsed(), err)
				}
				return left.Elapsed() > 5*lease
			})
			if n := e.Stats().Renewed - renewed; n < 8 {
				t.Errorf("%d renewals in five leases, want three in each", n)
			}
			if f := testkit.Fields(t, s, "L"); len(f) != 2 || f["mode"] != "write" || f[w.Owner()] != "1" {
				t.Errorf("the hash is %v", f)
			}
			testkit.MustUnlock(t, w)
			testkit.Clean(t, s, e)
		})
	})
}

// T37: in Redisson a name that is locked again and again within a period is renewed once for each
// of these times. Here a hold is renewed three times a lease, and those that have ended never.
func TestChurnAddsNoRenewals(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	s, p, e := testkit.Behind(t, testkit.LeaseOf(lease))
	renewals := p.Watch(testkit.Calls(script.Renew))
	began := time.Now()
	const cycles = 1000
	for range cycles {
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("L")))
	}
	h := testkit.MustLock(t, e.Mutex("L"))
	before := e.Stats().Renewed
	testkit.Eventually(t, "it is renewed three times", func() bool { return e.Stats().Renewed >= before+3 })
	periods := int(time.Since(began) / (lease / 3))
	if n := renewals.Done(); n > periods+2 {
		t.Errorf("%d renewals in %d periods, of %d holds one after the other", n, periods, cycles)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s, e)
}
