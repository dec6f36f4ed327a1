package enginetest

import (
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
)

// NewVirtual is New for a test in a bubble of testing/synctest, where time is
// virtual. A lease of 30 s ends as soon as all goroutines of the bubble wait, and ten
// minutes under the watchdog take a quarter of a second.
//
//	synctest.Test(t, func(t *testing.T) {
//		env := enginetest.NewVirtual(t)
//		h, err := env.Engine.Mutex("report").Lock(t.Context())
//		...
//		time.Sleep(10 * time.Minute)
//		h.Err() // nil: it was renewed sixty times
//	})
//
// Leases have the engine's default. Client and server use pipes inside the process,
// because a bubble's time stands still while one of its goroutines waits for a socket.
// So URL is empty, and you must not change the Config's Addrs and Dialer.
func NewVirtual(t testing.TB, change ...func(*engine.Config)) *Env {
	t.Helper()
	server := embedded.StartPipe()
	return start(t, &Env{server: local{server}, config: engine.Config{
		Addrs:  []string{"virtual:1"},
		Dialer: buffered(server.Dial),
	}}, change)
}
