package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
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

// acquireOf matches the tries to take a lock, in the queue of the engines that wait or without it.
func acquireOf(name string) faultproxy.Match {
	first, joins := scriptOn(script.Acquire, name), scriptOn(script.Join, name)
	return func(c faultproxy.Command) bool { return first(c) || joins(c) }
}

func releaseOf(name string) faultproxy.Match { return scriptOn(script.Release, name) }

func scriptOn(s *script.Script, name string) faultproxy.Match {
	is, has := calls(s), faultproxy.Has(name)
	return func(c faultproxy.Command) bool { return is(c) && has(c) }
}

func leaseOf(d time.Duration) func(*Config) { return func(c *Config) { c.Lease = d } }

var renewals = calls(script.Renew)

func mustLockMany(t testing.TB, e *Engine, names []string, opts ...Option) *Hold {
	t.Helper()
	h, err := e.LockMany(ctxT(t), names, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// moodyClock is the system's clock on a machine that sleeps and whose wall clock is
// set by hand.
type moodyClock struct {
	clock.Clock
	asleep  atomic.Int64
	seen    atomic.Int64 // what Now has seen of asleep: Stamp lags by the rest
	stepped atomic.Int64 // of the wall clock
}

func (c *moodyClock) Now() clock.Instant {
	slept := c.asleep.Load()
	c.seen.Store(slept)
	return c.Clock.Now().Add(time.Duration(slept))
}

func (c *moodyClock) Stamp() clock.Instant {
	return c.Clock.Stamp().Add(time.Duration(c.seen.Load()))
}

func (c *moodyClock) Wall() time.Time {
	return c.Clock.Wall().Add(time.Duration(c.asleep.Load() + c.stepped.Load()))
}

// behindOn is behind, with an engine whose time passes when told to. The server's does
// not: what was given a lease of hours there is there to stay.
func behindOn(t *testing.T, change ...func(*Config)) (*redistest.Server, *faultproxy.Proxy, *Engine, fakeTime) {
	t.Helper()
	s, clk := server(t), clock.NewFake()
	p := faultproxy.New(t, "tcp", s.Addr())
	e := openAt(t, p, clk, change...)
	return s, p, e, fakeTime{e, clk}
}

// openAt connects an engine that has this clock, through the proxy.
func openAt(t *testing.T, p *faultproxy.Proxy, clk clock.Clock, change ...func(*Config)) *Engine {
	t.Helper()
	cfg, err := ParseURL("redis://" + p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	cfg.wheel.Workers = 1 // timers fire in order: see pass
	e := start(cfg.withDefaults(), env.Real(clk))
	t.Cleanup(func() { _ = e.Close() })
	if err := connected(e).WaitReady(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	return e
}

// fakeTime is an engine's time.
type fakeTime struct {
	eng   *Engine
	clock *clock.Fake
}

// pass lets time pass, in steps, and waits for the timers of each.
func (f fakeTime) pass(d time.Duration) {
	const steps = 20
	for range steps {
		f.clock.Advance(d / steps)
		last := lastTimer{fired: make(chan struct{})}
		last.timer.Init(&last)
		f.eng.table.Timers.Schedule(&last.timer, f.clock.Now())
		<-last.fired
	}
}

// asleep lets d pass without any timer noticing, until wake is called.
func (f fakeTime) asleep(d time.Duration) (wake func()) {
	s := &stuckTimer{started: make(chan struct{}), goOn: make(chan struct{})}
	s.timer.Init(s)
	f.eng.table.Timers.Schedule(&s.timer, f.clock.Now())
	<-s.started
	f.clock.Advance(d)
	return func() { close(s.goOn) }
}

// lastTimer tells that it fired, and so that all that were due before it have.
type lastTimer struct {
	timer wheel.Timer
	fired chan struct{}
}

// Fire implements wheel.Task.
func (l *lastTimer) Fire(*wheel.Timer, clock.Instant) { close(l.fired) }

// receive waits for a channel, but not for ever.
func receive[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-ctxT(t).Done():
		t.Fatalf("nothing within %v", limit)
	}
	return v
}

// limit is how long a test waits for something that must happen: of the time that this
// process can use, as everything here that bounds how long something may take.
const limit = 20 * time.Second

// open connects an engine to a server and closes it with the test.
func open(t testing.TB, url string, change ...func(*Config)) *Engine {
	t.Helper()
	cfg, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.NoInspect = true // tests count commands and channels
	for _, f := range change {
		f(&cfg)
	}
	e, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// steady is cputime.Steady, for tests whose leases and timeouts must suffice: a process that
// does not run for longer than this loses locks, and rightly so.
func steady(t *testing.T, scenario func(t testing.TB)) {
	t.Helper()
	cputime.Steady(t, 50*time.Millisecond, scenario)
}

// server starts a redis-server of the test's own.
func server(t testing.TB, opts ...redistest.Option) *redistest.Server {
	t.Helper()
	return redistest.Start(t, opts...)
}

// within returns a context that ends the test's patience.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := cputime.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func ctxT(t testing.TB) context.Context { return within(t, limit) }

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	pause := time.Millisecond
	for start := cputime.Now(); !ok(); {
		if start.Elapsed() > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(pause) // a poll, not a hope: the limit above decides
		pause = min(pause*5/4, 20*time.Millisecond)
	}
}

// fields returns the lock's hash on the server.
func fields(t testing.TB, s *redistest.Server, name string) map[string]string {
	t.Helper()
	list, _ := s.Do("HGETALL", name).([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i].(string)] = list[i+1].(string)
	}
	return m
}

// mustLock locks or fails the test.
func mustLock(t testing.TB, m Mutex, opts ...Option) *Hold {
	t.Helper()
	h, err := m.Lock(ctxT(t), opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", m.Name(), err)
	}
	return h
}

func mustUnlock(t testing.TB, h *Hold) {
	t.Helper()
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Fatalf("Unlock(%q): %v", h.Name(), err)
	}
}

// clean fails the test if the server has anything left of Pawl.
func clean(t testing.TB, s *redistest.Server, engines ...*Engine) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("channels: %v", s.Do("PUBSUB", "CHANNELS"))
			for _, e := range engines {
				report(t, e)
			}
		}
	}()
	// At once, but for what was abandoned while its command was out: that comes back
	// with the answer. A lock that is lost to everybody has its lease of 30 s.
	for start := cputime.Now(); s.Do("DBSIZE") != int64(0); {
		if start.Elapsed() > 5*time.Second {
			t.Errorf("keys are left: %v", s.Do("KEYS", "*"))
			break
		}
		time.Sleep(2 * time.Millisecond) // a poll, bounded above
	}
	eventually(t, "no channel is subscribed", func() bool {
		list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == 0
	})
}

func hasText(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// report logs what an engine is doing, for a test that failed.
func report(t testing.TB, e *Engine) {
	t.Helper()
	t.Logf("stats: %+v", e.Stats())
	for _, l := range e.table.Recovery.View().Lanes {
		t.Logf("a lane, up %v: %d urgent, %d tries stalled, %d out", l.Lane.Up(), len(l.Urgent), len(l.Tries), l.Out)
	}
	states := map[string]int{}
	for i := range e.table.Shards() {
		sh := &e.table.Shards()[i]
		sh.Lock()
		for _, r := range sh.Locks.All() {
			v := r.View()
			states[fmt.Sprintf("cmd %d held %d head %q hold %v waiters %v", v.What, v.Held, v.Head, v.Depth > 0, v.Waiters > 0)]++
		}
		sh.Unlock()
	}
	t.Logf("resources: %v", states)
}

// connected is the client of an engine that lives in the real world.
func connected(e *Engine) *resp.Client { return e.table.Client.(env.RespClient).Client }

// lookInto is what an engine remembers.
func lookInto(e *Engine) env.Snapshot { return e.inside() }

// renewAll makes an engine renew everything that it holds.
func renewAll(e *Engine) { e.table.Renewer.All() }

// oneOf is what is behind the Hold of one lock.
func oneOf(h *Hold) *lockHold { return h.h.(*lockHold) }

// patient is an engine that gives no connection up for want of an answer.
func patient(c *Config) { c.CommandTimeout = 24 * time.Hour }

// stuckTimer keeps the only worker of a wheel busy, as if the process had been suspended
// and its callers ran before its timers.
type stuckTimer struct {
	timer         wheel.Timer
	started, goOn chan struct{}
}

// Fire implements wheel.Task.
func (s *stuckTimer) Fire(*wheel.Timer, clock.Instant) { close(s.started); <-s.goOn }

// pttl is what the server says the key has left; negative: no key, no expiry.
func pttl(t testing.TB, s *redistest.Server, key string) time.Duration {
	t.Helper()
	ms, ok := s.Do("PTTL", key).(int64)
	if !ok {
		t.Fatal("PTTL is no number")
	}
	return time.Duration(ms) * time.Millisecond
}

// giveUpNow has a TryLock give up as after Config.CommandTimeout.
func (a *acquisition) giveUpNow() {
	a.Shard.Lock()
	if a.More().Deadline == nil { // it has its turn already
		a.GiveUpAt(a.Shard.Now().Add(time.Hour))
	}
	d := a.More().Deadline.(wheel.Task)
	a.Shard.Unlock()
	d.Fire(nil, 0)
}

// through puts a proxy before the server at i.
func (s *independents) through(i int, v voters, change ...func(*Config)) *faultproxy.Proxy {
	s.t.Helper()
	p := faultproxy.New(s.t, "tcp", s.servers[i].Addr())
	v[i] = open(s.t, "redis://"+p.Addr(), change...)
	return p
}

// independents are servers of which each has an engine, as one process sees them.
type independents struct {
	t       testing.TB
	servers []*redistest.Server
}

func (s *independents) open(change ...func(*Config)) (v voters) {
	s.t.Helper()
	for _, one := range s.servers {
		v = append(v, open(s.t, one.URL(), change...))
	}
	return v
}

// clean fails the test if a running server has anything left.
func (s *independents) clean(all ...voters) {
	s.t.Helper()
	for i, one := range s.servers {
		if one.Running() {
			var engines []*Engine
			for _, v := range all {
				engines = append(engines, v[i])
			}
			clean(s.t, one, engines...)
		}
	}
}

func independent(t testing.TB, n int) *independents {
	s := &independents{t: t}
	for range n {
		s.servers = append(s.servers, server(t))
	}
	return s
}

// voters are the engines of one process.
type voters []*Engine

func (v voters) lock(name string) QuorumLock {
	locks := make([]Mutex, len(v))
	for i, e := range v {
		locks[i] = e.Mutex(name)
	}
	return RedLock(locks...)
}

func mustRedLock(t testing.TB, l QuorumLock, opts ...Option) *Hold {
	t.Helper()
	h, err := l.Lock(ctxT(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func mustReenter(t testing.TB, m Mutex, h *Hold, opts ...Option) *Hold {
	t.Helper()
	child, err := m.Lock(h.Context(ctxT(t)), opts...)
	if err != nil {
		t.Fatalf("re-entry of %s: %v", m.Name(), err)
	}
	if child.Owner() != h.Owner() {
		t.Fatalf("%s was taken afresh, not re-entered", m.Name())
	}
	return child
}

func wantLost(t testing.TB, what string, err error, reason LostReason) {
	t.Helper()
	var lost *LostError
	if !errors.As(err, &lost) || !errors.Is(err, ErrLost) || lost.Reason != reason {
		t.Errorf("%s: %v, want a LostError: %v", what, err, reason)
	}
}

func errOf[T any](_ T, err error) error { return err }

// remembered counts what an engine remembers.
func remembered(e *Engine) (servers, releases int) {
	v := e.table.Recovery.View()
	return v.Servers, v.Releases
}

// sleepsOnMessagesForTest reports whether the head of a name sleeps, and the server has
// confirmed its subscription.
func (e *Engine) sleepsOnMessagesForTest(name string) bool {
	m := e.Mutex(name)
	sh := e.table.Shard(m.route)
	sh.Lock()
	defer sh.Unlock()
	r := sh.Locks.Find(m.key.Name)
	if r == nil {
		return false
	}
	v := r.View()
	return v.Head == lock.Asleep && v.Channel == lock.Heard && v.What == lock.NoCommand
}

func alive(contexts []context.Context) (n int) {
	for _, ctx := range contexts {
		if ctx.Err() == nil {
			n++
		}
	}
	return n
}

func stack() string {
	b := make([]byte, 64<<10)
	return string(b[:runtime.Stack(b, false)])
}

// onLoop reports whether a stack is that of a goroutine that everything hangs on: an
// event loop, a reader or a worker of the wheel.
func onLoop(stack string) bool {
	for _, frame := range []string{"gnet.", ".Complete(", ".Fire(", ".ChannelEvent(", ".readLoop("} {
		if strings.Contains(stack, frame) {
			return true
		}
	}
	return false
}
