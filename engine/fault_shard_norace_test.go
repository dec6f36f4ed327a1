//go:build !race

package engine

import "testing"

func TestDeadShardDelaysNoOtherRenewalsOf100000Holds(t *testing.T) {
	t.Parallel()
	deadShard(t, 100_000)
}
