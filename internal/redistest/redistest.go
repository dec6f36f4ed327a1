// Package redistest starts real redis-server (or valkey-server) processes for
// tests and for the benchmark harness.
//
// A server listens on 127.0.0.1 and on a unix socket, keeps nothing on disk, and
// is ready when Start returns. On Linux it dies with this process, whatever ends
// that: the kernel sees to it.
//
// Tests use Start; programs use StartProcess. The package does not import
// testing, so that a program linking it does not either.
package redistest

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"
)

// TB is what Start needs of a *testing.T, *testing.B or *testing.F.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// Server is a server that belongs to a test: what goes wrong fails the test.
// Its methods are called from the test's goroutine; other goroutines use the
// embedded Process, whose methods return errors.
type Server struct {
	*Process
	t TB
}

// startTimeout is for a machine that runs everything else at the same time; a
// server usually answers within 10 ms.
const startTimeout = 2 * time.Minute

// Start starts a server and waits until it answers. It ends with the test. If
// the test fails, the end of the server's log is logged. Without a redis-server
// on the machine the test fails and says how to install one. It skips if the server
// there is cannot do what the options ask for, as old ones cannot; see Needs.
func Start(t TB, opts ...Option) *Server {
	t.Helper()
	var cfg Config
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.Binary == "" {
		path, err := Binary()
		if err != nil {
			t.Fatalf("%v", err)
		}
		cfg.Binary = path
	}
	if missing := cfg.missing(); missing != "" {
		if s, ok := t.(interface{ Skip(args ...any) }); ok {
			s.Skip(missing)
		}
		t.Fatalf("%s", missing)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	p, err := StartProcess(ctx, cfg)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	s := &Server{Process: p, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis-server on %s, end of its log:\n%s", p.Addr(), p.Log())
		}
		if err := p.Close(); err != nil {
			t.Logf("closing redis-server: %v", err)
		}
	})
	return s
}

// Option changes how a server is started.
type Option func(*Config)

// Password sets requirepass.
func Password(p string) Option { return func(c *Config) { c.Password = p } }

// SentinelPassword sets the requirepass of the sentinels that StartSentinel starts.
func SentinelPassword(p string) Option { return func(c *Config) { c.sentinelPassword = p } }

// User adds a user, written as in redis.conf after the word "user":
// "alice on >secret ~* &* +@all". The default user can be changed this way too;
// the admin client has a user of its own.
func User(rule string) Option { return func(c *Config) { c.Users = append(c.Users, rule) } }

// TLS makes the server's TCP port speak TLS; see Process.TLSConfig.
func TLS() Option { return func(c *Config) { c.TLS = true } }

// ClientCerts is TLS, and clients must show a certificate; TLSConfig has one.
func ClientCerts() Option { return func(c *Config) { c.TLS, c.ClientCerts = true, true } }

// Line adds lines to the end of redis.conf, where they win over what is above.
func Line(lines ...string) Option { return func(c *Config) { c.Lines = append(c.Lines, lines...) } }

// Kill is Process.Kill.
func (s *Server) Kill() { s.t.Helper(); s.must(s.Process.Kill()) }

// Stop is Process.Stop.
func (s *Server) Stop() { s.t.Helper(); s.must(s.Process.Stop()) }

// Cont is Process.Cont.
func (s *Server) Cont() { s.t.Helper(); s.must(s.Process.Cont()) }

// Restart is Process.Restart.
func (s *Server) Restart() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s.must(s.Process.Restart(ctx))
}

// Do runs one command as the admin and returns the reply as Process.Do does; an
// error reply comes back as a ReplyError, any other error fails the test.
func (s *Server) Do(words ...string) any {
	s.t.Helper()
	v, err := s.Process.Do(words...)
	var refused ReplyError
	if errors.As(err, &refused) {
		return refused
	}
	s.must(err)
	return v
}

// Info runs a command that reads and answers with a text; "" if it is refused. It asks
// again if the connection is cut: sentinels end all of a server whose role they change.
func (s *Server) Info(words ...string) string {
	s.t.Helper()
	for range 5 {
		v, err := s.Process.Do(words...)
		if err == nil {
			text, _ := v.(string)
			return text
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			break
		}
	}
	text, _ := s.Do(words...).(string)
	return text
}

// CommandStats is Process.CommandStats.
func (s *Server) CommandStats() map[string]int64 {
	s.t.Helper()
	stats, err := s.Process.CommandStats()
	s.must(err)
	return stats
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v", err)
	}
}
