package engine

import (
	"bytes"
	"context"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
)

// Profiles are looked at by role: what carries another label cannot be found.
func TestGoroutinesOfConnectionsCarryTheirRole(t *testing.T) {
	t.Parallel()
	s := server(t)
	open(t, s.URL())
	open(t, s.URL(), func(c *Config) {
		c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return struct{ net.Conn }{conn}, err // of a kind that no event loop takes
		}
	})
	roles := map[string]string{
		"gnet/v2.(*eventloop).run":       "resp event loop", // of nobody in a program without gnet
		"resp.(*stdTransport).readLoop":  "resp reader",
		"resp.(*stdTransport).writeLoop": "resp writer",
	}
	eventually(t, "all of them run", func() bool {
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
