package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/pawl-lock/pawl/engine/internal/world"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// closedClient is a client that can only be closed.
type closedClient struct{ world.Client }

func (closedClient) Close() error { return nil }

// A client begins to connect before the engine has it. What it tells meanwhile waits.
func TestEventsWaitUntilTheEngineHasItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var heard atomic.Int32
		w := world.Real(clock.System())
		w.Client = func(_ resp.Config, events world.Events) world.Client {
			go func() {
				events.Connection(resp.State{Up: true}, resp.LaneID{})
				heard.Add(1)
			}()
			go func() {
				events.Routes()
				heard.Add(1)
			}()
			synctest.Wait()
			if n := heard.Load(); n != 0 {
				t.Errorf("%d of 2 events came to an engine without a client", n)
			}
			return closedClient{}
		}
		cfg := Config{Addrs: []string{"unused:1"}}
		e := start(cfg.withDefaults(), w)
		synctest.Wait()
		if n := heard.Load(); n != 2 {
			t.Errorf("%d of 2 events came once it had one", n)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
