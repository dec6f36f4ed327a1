//go:build !race

package engine

import (
	"testing"
	"time"
)

func TestDeadShardDelaysNoOtherRenewalsOf100000Holds(t *testing.T) {
	t.Parallel()
	lease := 6 * time.Second
	steady(t, func(t testing.TB) {
		lease = min(2*lease, time.Minute) // a busy machine needs longer to renew so many
		deadShard(t, 100_000, lease)
	})
}
