//go:build !race

package topology

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestDeadShardDelaysNoOtherRenewalsOf100000Holds(t *testing.T) {
	t.Parallel()
	lease := 6 * time.Second
	testkit.Steady(t, func(t testing.TB) {
		lease = min(2*lease, time.Minute) // a busy machine needs longer to renew so many
		deadShard(t, 100_000, lease)
	})
}
