//go:build !race

package counter

import "testing"

func TestTenThousandHistoriesOfOutagesNeitherLoseNorMakePermits(t *testing.T) {
	t.Parallel()
	outagesNeitherLoseNorMake(t, 10_000)
}
