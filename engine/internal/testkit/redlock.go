package testkit

import (
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Independents are servers of which each has an engine, as one process sees them.
type Independents struct {
	t       testing.TB
	Servers []*redistest.Server
}

// Independent starts n servers.
func Independent(t testing.TB, n int) *Independents {
	t.Helper()
	s := &Independents{t: t}
	for range n {
		s.Servers = append(s.Servers, Server(t))
	}
	return s
}

// Voters are the engines of one process.
type Voters []*engine.Engine

// Open opens an engine on each server.
func (s *Independents) Open(change ...func(*engine.Config)) (v Voters) {
	s.t.Helper()
	for _, one := range s.Servers {
		v = append(v, Open(s.t, one.URL(), change...))
	}
	return v
}

// Through puts a proxy before the server at i.
func (s *Independents) Through(i int, v Voters, change ...func(*engine.Config)) *faultproxy.Proxy {
	s.t.Helper()
	p := faultproxy.New(s.t, "tcp", s.Servers[i].Addr())
	v[i] = Open(s.t, "redis://"+p.Addr(), change...)
	return p
}

// Lock is a RedLock of all the servers.
func (v Voters) Lock(name string) engine.QuorumLock {
	locks := make([]engine.Mutex, len(v))
	for i, e := range v {
		locks[i] = e.Mutex(name)
	}
	return engine.RedLock(locks...)
}

// Clean fails the test if a running server has anything left.
func (s *Independents) Clean(all ...Voters) {
	s.t.Helper()
	for i, one := range s.Servers {
		if one.Running() {
			var engines []*engine.Engine
			for _, v := range all {
				engines = append(engines, v[i])
			}
			Clean(s.t, one, engines...)
		}
	}
}

// MustRedLock locks or fails the test.
func MustRedLock(t testing.TB, l engine.QuorumLock, opts ...engine.Option) *engine.Hold {
	t.Helper()
	h, err := l.Lock(Ctx(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
