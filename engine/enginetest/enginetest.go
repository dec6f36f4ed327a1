package enginetest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/redact"
)

// Lease is the lease of holds under the watchdog of an Env's engines, unless New is
// told otherwise. A stolen lock is noticed after about a third of it, a server that is down
// after nine tenths.
const Lease = 3 * time.Second

// connectTimeout is for a machine that runs everything else at the same time.
const connectTimeout = 20 * time.Second

// Env is a server and an engine that belong to one test. Its methods may be called from
// any goroutine of the test.
type Env struct {
	// Engine is the first client.
	Engine *engine.Engine
	// URL is the server's address, for code that opens an engine itself. Such an engine
	// has the usual defaults; append "?lease=3s" for a shorter lease.
	URL string

	t      testing.TB
	server server
	config engine.Config

	mu struct {
		sync.Mutex
		engines []*engine.Engine
		lose    []func(key string, why uint8) int // of each engine
	}
}

// New starts a server and connects an engine to it. Each change may set fields of the
// engine's Config; the changes apply to Open too. The test's Cleanup closes both, and
// reports locks that are still held as errors of the test.
func New(t testing.TB, change ...func(*engine.Config)) *Env {
	t.Helper()
	server, err := embedded.Start("")
	if err != nil {
		t.Fatalf("enginetest: %v", err)
	}
	return start(t, &Env{URL: server.URL(), server: local{server}, config: engine.Config{
		Addrs: []string{server.Addr()},
		Lease: Lease,
	}}, change)
}

// start connects the first client.
func start(t testing.TB, env *Env, change []func(*engine.Config)) *Env {
	t.Helper()
	env.t = t
	for _, f := range change {
		f(&env.config)
	}
	t.Cleanup(env.close)
	env.Engine = env.Open()
	return env
}

// Open connects another client, with the Config of the first and the given changes. The
// two clients exclude each other like two processes. Open's client is closed with the
// test.
func (v *Env) Open(change ...func(*engine.Config)) *engine.Engine {
	v.t.Helper()
	cfg := v.config
	for _, f := range change {
		f(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	w := env.From(ctx)
	var lose func(key string, why uint8) int
	w.Lose = func(f func(key string, why uint8) int) { lose = f }
	e, err := engine.New(env.With(ctx, w), cfg)
	if err != nil {
		v.t.Fatalf("enginetest: connecting to the server: %v", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.engines = append(v.mu.engines, e)
	v.mu.lose = append(v.mu.lose, lose)
	return e
}

// String names the server, without a password.
func (env *Env) String() string {
	u, err := url.Parse(env.URL)
	if err != nil {
		return "Env"
	}
	u.RawQuery = "" // it may have a password, too
	return "Env(" + u.Redacted() + ")"
}

// Format implements fmt.Formatter: String, whatever the verb.
func (env *Env) Format(f fmt.State, verb rune) { redact.Format(f, verb, env.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (env *Env) MarshalText() ([]byte, error) { return []byte(env.String()), nil }

// close reports what the test left behind and ends everything.
func (env *Env) close() {
	env.reportHeld()
	// A server that is down would have Close wait for it.
	if err := env.server.Up(); err != nil {
		env.t.Errorf("enginetest: %v", err)
	}
	env.server.Heal()
	env.mu.Lock()
	engines := env.mu.engines
	env.mu.Unlock()
	for i := len(engines) - 1; i >= 0; i-- {
		if err := engines[i].Close(); err != nil {
			env.t.Errorf("enginetest: closing an engine: %v", err)
		}
	}
	env.server.Close()
}
