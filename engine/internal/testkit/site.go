package testkit

import (
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Site is one deployment under test, and how to look at it from behind.
type Site struct {
	URL     string
	TLS     *tls.Config
	Servers func() []*redistest.Server            // those that may hold keys, as of now
	Do      func(key string, words ...string) any // at the server that serves the key
	Flush   func()                                // empties every script cache
	Host    string                                // that the nodes announce, if not 127.0.0.1
	Durable bool                                  // every operation waits for replicas
}

// Single is one server.
func Single(s *redistest.Server) *Site {
	return &Site{
		URL:     s.URL(),
		Servers: func() []*redistest.Server { return []*redistest.Server{s} },
		Do:      func(_ string, words ...string) any { return s.Do(words...) },
		Flush:   func() { s.Do("SCRIPT", "FLUSH") },
	}
}

// Replicated is a primary with replicas.
func Replicated(r *redistest.Replicated) *Site {
	return &Site{
		URL:     r.URL(),
		Servers: func() []*redistest.Server { return []*redistest.Server{r.Primary()} },
		Do:      func(_ string, words ...string) any { return r.Primary().Do(words...) },
		Flush:   func() { r.Primary().Do("SCRIPT", "FLUSH") },
	}
}

// Clustered is a cluster.
func Clustered(c *redistest.Cluster) *Site {
	return &Site{URL: c.URL(), Servers: c.Primaries, Do: c.Do, Flush: c.FlushScripts}
}

// Open connects an engine that is patient with replicas, if no change says otherwise.
func (at *Site) Open(t testing.TB, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	return Open(t, at.URL, append([]func(*engine.Config){PatientWithReplicas}, append(change, func(c *engine.Config) {
		if at.TLS != nil {
			c.TLS = at.TLS
		}
	})...)...)
}

// Clean fails the test if the servers have anything left.
func (at *Site) Clean(t testing.TB) {
	t.Helper()
	for _, s := range at.Servers() {
		Eventually(t, "no key is left on "+s.Addr(), func() bool { return LockCount(s) == 0 }) // a promoted replica may have an old queue
		Eventually(t, "no channel is left on "+s.Addr(), func() bool { return len(channels(s)) == 0 })
	}
}

// Commands counts what the servers have executed, by name.
func (at *Site) Commands() map[string]int64 {
	sum := make(map[string]int64)
	for _, s := range at.Servers() {
		for name, n := range s.CommandStats() {
			sum[name] += n
		}
	}
	return sum
}

// AckTimeout sets Config.AckTimeout.
func AckTimeout(d time.Duration) func(*engine.Config) {
	return func(c *engine.Config) { c.AckTimeout = d }
}

// PatientWithReplicas is for tests that do not say otherwise: on a busy machine replicas may
// take long to acknowledge.
func PatientWithReplicas(c *engine.Config) {
	if c.AckTimeout == 0 {
		c.AckTimeout = Limit
	}
}

// WantNotAcked fails the test unless err says so many of so many.
func WantNotAcked(t testing.TB, err error, acked, wanted int) {
	t.Helper()
	var short *engine.AckError
	if !errors.As(err, &short) || !errors.Is(err, engine.ErrNotAcked) || short.Acked != acked || short.Wanted != wanted {
		t.Fatalf("want %d of %d replicas, got: %v", acked, wanted, err)
	}
	if text := fmt.Sprintf("%d of %d replicas", acked, wanted); !HasText(err, text) {
		t.Errorf("%q does not say %q", err, text)
	}
}
