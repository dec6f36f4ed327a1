package enginetest

import (
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
)

// NewVirtual is New for a test in a bubble of testing/synctest, where time is
// virtual: a lease of 30 s is over when everybody has nothing to do but wait for
// it, and ten minutes under the watchdog take a quarter of a second.
//
//	synctest.Test(t, func(t *testing.T) {
//		env := enginetest.NewVirtual(t)
//		h, err := env.Engine.Mutex("report").Lock(t.Context())
//		...
//		time.Sleep(10 * time.Minute)
//		h.Err() // nil: it was renewed sixty times
//	})
//
// Leases have the engine's default here. Client and server speak over pipes inside
// the process, for a bubble's time stands still while anybody in it waits for a
// socket; so URL is empty, and the Config's Addrs and Dialer are not to be changed.
func NewVirtual(t testing.TB, change ...func(*engine.Config)) *Env {
	t.Helper()
	server := embedded.StartPipe()
	return start(t, &Env{server: server, config: engine.Config{
		Addrs:  []string{"virtual:1"},
		Dialer: buffered(server.Dial),
	}}, change)
}
