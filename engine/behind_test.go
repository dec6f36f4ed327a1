package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// behind starts a server with a fault proxy in front, and an engine that goes
// through the proxy.
func behind(t testing.TB, change ...func(*Config)) (*redistest.Server, *faultproxy.Proxy, *Engine) {
	t.Helper()
	s := server(t)
	p := faultproxy.New(t, "tcp", s.Addr())
	return s, p, open(t, "redis://"+p.Addr(), change...)
}

func calls(s *script.Script) faultproxy.Match { return faultproxy.Is("EVALSHA", s.SHA) }

func acquireOf(name string) faultproxy.Match { return scriptOn(script.Acquire, name) }
func releaseOf(name string) faultproxy.Match { return scriptOn(script.Release, name) }

func scriptOn(s *script.Script, name string) faultproxy.Match {
	is, has := calls(s), faultproxy.Has(name)
	return func(c faultproxy.Command) bool { return is(c) && has(c) }
}

func leaseOf(d time.Duration) func(*Config) { return func(c *Config) { c.Lease = d } }

func short(c *Config) { c.Lease = 600 * time.Millisecond }

var renewals = calls(script.Renew)

// renewedAfter waits until a hold that was valid until then has been renewed.
func renewedAfter(t testing.TB, h *Hold, until time.Time) {
	t.Helper()
	eventually(t, "it is renewed", func() bool {
		if err := h.Err(); err != nil {
			t.Fatalf("the hold ended: %v", err)
		}
		return h.ValidUntil().After(until.Add(100 * time.Millisecond))
	})
}

func someNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("n", i)
	}
	return all
}

func mustLockMany(t testing.TB, e *Engine, names []string, opts ...Option) *Hold {
	t.Helper()
	h, err := e.LockMany(ctxT(t), names, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func mustReenterWith(t testing.TB, ctx context.Context, m Mutex) *Hold {
	t.Helper()
	h, err := m.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
