package callbacks

import (
	"bytes"
	"context"
	"net"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Profiles are looked at by role: what carries another label cannot be found.
func TestEngine_GoroutinesOfConnections_CarryTheirRole(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	testkit.Open(t, s.URL())
	testkit.Open(t, s.URL(), func(c *engine.Config) {
		c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return struct{ net.Conn }{conn}, err // of a kind that no event loop takes
		}
	})
	roles := map[string]string{
		"gnet/v2.(*eventloop).run":         "resp event loop", // of nobody in a program without gnet
		"socket.(*stdTransport).readLoop":  "resp reader",
		"socket.(*stdTransport).writeLoop": "resp writer",
	}
	testkit.Eventually(t, "all of them run", func() bool {
		var profile bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Fatal(err)
		}
		found := make(map[string]bool)
		for stack := range strings.SplitSeq(profile.String(), "\n\n") {
			for function, role := range roles {
				if !strings.Contains(stack, function) {
					continue
				}
				found[role] = true
				if !strings.Contains(stack, `"role":"`+role+`"`) {
					t.Fatalf("not %s:\n%s", role, stack)
				}
			}
		}
		return found["resp reader"] && found["resp writer"]
	})
}

// User code runs on goroutines of its own. They would have the label of the goroutine that started them:
// that of an event loop, or of the user's own goroutine.
func TestEngine_GoroutinesOfUserCode_CarryTheirRole(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(t *testing.T, user func()){
		"callback": func(t *testing.T, user func()) {
			e := testkit.Open(t, testkit.Server(t).URL())
			e.Mutex("x").LockAsync(testkit.Ctx(t)).OnComplete(func(*engine.Hold, error) { user() })
		},
		"observer": func(t *testing.T, user func()) {
			e := testkit.Open(t, testkit.Server(t).URL(), func(c *engine.Config) {
				c.Observer = engine.ObserverFuncs{OnAcquireEnd: func(context.Context, engine.Acquisition, engine.AcquireEnd) { user() }}
			})
			e.Mutex("x").LockAsync(testkit.Ctx(t))
		},
		"executor": func(t *testing.T, user func()) {
			e := testkit.Open(t, testkit.Server(t).URL(), func(c *engine.Config) { c.Executor = func(task func()) { user(); task() } })
			e.Mutex("x").LockAsync(testkit.Ctx(t)).OnComplete(func(*engine.Hold, error) {})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile := make(chan string, 1)
			run(t, func() { profile <- ownStack(t) })
			if stack := testkit.Receive(t, profile); !strings.Contains(stack, `"role":"engine user code"`) {
				t.Errorf("%s", stack)
			}
		})
	}
}

// ownStack is the calling goroutine's part of the profile, with its labels. Others may
// share it, if they have the same labels.
func ownStack(t *testing.T) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Error(err)
	}
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, "callbacks.ownStack") {
			return stack
		}
	}
	return ""
}
