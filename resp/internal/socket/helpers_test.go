package socket

import (
	"testing"

	"github.com/pawl-lock/pawl/internal/sockettest"
)

// world is the two ends of connections, and loops.
type world struct {
	*sockettest.World
	t     testing.TB
	loops *Loops
}

func newWorld(t testing.TB, c sockettest.Carrier) *world {
	t.Helper()
	w := &world{World: sockettest.NewWorld(t, c), t: t}
	w.loops = NewLoops(1, c.ForceStd, func(err error) { t.Errorf("no event loops: %v", err) })
	t.Cleanup(func() {
		if err := w.loops.Close(); err != nil {
			t.Errorf("closing the loops: %v", err)
		}
	})
	return w
}

// eachCarrier runs test over every carrier, in parallel.
func eachCarrier(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	for _, c := range sockettest.Carriers {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, c))
		})
	}
}
