package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redacttest"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

func someNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("n", i)
	}
	return all
}

// openOn connects an engine that has this clock.
func openOn(t testing.TB, s *redistest.Server, clk clock.Clock, change ...func(*Config)) *Engine {
	t.Helper()
	cfg, err := ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	e := start(cfg.withDefaults(), env.Real(clk))
	t.Cleanup(func() { _ = e.Close() })
	if err := connected(e).WaitReady(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	return e
}

// The server's wall clock may have been set with ours, and leases count on it there:
// every hold is renewed at once, long before it is due, and none is lost.
func TestEngine_WallClockSteps_RenewsEveryHoldAtOnce(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"forward": 3 * time.Hour, "backward": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				s := server(t)
				clk := &moodyClock{Clock: clock.System()}
				e := openOn(t, s, clk, func(c *Config) { c.Lease = 10 * time.Minute })
				const n = 200
				var holds []*Hold
				for i := range n {
					holds = append(holds, mustLock(t, e.Mutex(fmt.Sprint("x", i))))
				}
				if r := e.Stats().Renewed; r != 0 {
					t.Fatalf("%d renewed before the step", r)
				}
				for round := range 2 {
					clk.stepped.Add(int64(step))
					eventually(t, "all are renewed", func() bool { return e.Stats().Renewed >= uint64(n*(round+1)) })
					for _, h := range holds {
						if err, left := h.Err(), h.ValidUntil().Sub(clk.Wall()); err != nil || left < 9*time.Minute || left > 10*time.Minute {
							t.Fatalf("after the step: %v, valid for another %v", err, left)
						}
					}
					// A few that were renewed joined a cohort that was still to be renewed.
					if st := e.Stats(); st.Renewed > uint64(n*(round+1)*5/4) || st.WheelRebuilds != uint64(round+1) {
						t.Errorf("round %d: %d renewed, %d rebuilds", round, st.Renewed, st.WheelRebuilds)
					}
				}
				for _, h := range holds {
					mustUnlock(t, h)
				}
				clean(t, s, e)
			})
		})
	}
}

// After a sleep that outlasts the lease, whatever is asked first of a hold tells the
// truth, although no timer has run yet.
func TestEngine_MachineSleeps_EveryHoldEndsBeforeItsNextUse(t *testing.T) {
	t.Parallel()
	uses := map[string]func(t *testing.T, e *Engine, h *Hold, outer context.Context){
		"Err": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if err := h.Err(); !errors.Is(err, ErrLost) {
				t.Errorf("Err: %v", err)
			}
		},
		"ValidUntil": func(t *testing.T, e *Engine, h *Hold, _ context.Context) {
			if left := h.ValidUntil().Sub(e.clock.Wall()); left > 0 {
				t.Errorf("valid for another %v", left)
			}
		},
		"Unlock": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
		},
		"UnlockAsync": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if _, err := h.UnlockAsync().Await(ctxT(t)); !errors.Is(err, ErrLost) {
				t.Errorf("UnlockAsync: %v", err)
			}
		},
		"Extend": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if err := h.Extend(ctxT(t), time.Minute); !errors.Is(err, ErrLost) && !errors.Is(err, ErrInvalid) {
				t.Errorf("Extend: %v", err)
			}
		},
		"Context": func(t *testing.T, _ *Engine, h *Hold, _ context.Context) {
			if ctx := h.Context(context.Background()); !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("Context: its cause is %v", context.Cause(ctx))
			}
		},
		"re-entry": func(t *testing.T, e *Engine, h *Hold, outer context.Context) {
			child, err := e.Mutex(h.Name()).TryLock(outer)
			if err == nil && child.Owner() == h.Owner() {
				t.Error("re-entered a hold that had ended")
			}
			if err == nil {
				mustUnlock(t, child)
			}
		},
	}
	for what, use := range uses {
		for kind, opts := range map[string][]Option{"watchdog": nil, "fixed lease": {Lease(30 * time.Second)}} {
			t.Run(what+", "+kind, func(t *testing.T) {
				t.Parallel()
				s := server(t)
				clk := &moodyClock{Clock: clock.System()}
				e := openOn(t, s, clk)
				h := mustLock(t, e.Mutex("x"), opts...)
				outer := h.Context(context.Background())
				next := e.Mutex("x").LockAsync(ctxT(t))
				clk.asleep.Add(int64(40 * time.Second))
				use(t, e, h, outer)
				select {
				case <-h.Done():
				case <-ctxT(t).Done():
					t.Fatal("Done does not follow")
				}
				<-outer.Done()
				if err := h.Err(); !errors.Is(err, ErrLost) {
					t.Errorf("it ended with %v", err)
				}
				// The server has not slept: the field is still there, and is released.
				got, err := next.Await(ctxT(t))
				if err != nil {
					t.Fatal(err)
				}
				mustUnlock(t, got)
				eventually(t, "nothing is left on the server", func() bool { return s.Do("DBSIZE") == int64(0) })
			})
		}
	}
}

// deadLibrary is the library below the timing wheel when it has dead-locked: what it
// is given never fires, and if it hangs, nothing returns.
type deadLibrary struct{ hang <-chan struct{} }

func (l deadLibrary) Start() {}

func (l deadLibrary) After(time.Duration, func()) { <-l.hang }

func (l deadLibrary) Stop() { <-l.hang }

// onDead returns the configuration of a wheel whose every library is dead. The
// wheel's own tests have a seam for that, which is not exported.
func onDead(hang <-chan struct{}) wheel.Config {
	var cfg wheel.Config
	field := reflect.ValueOf(&cfg).Elem().FieldByName("newLibrary")
	made := reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value {
		lib := reflect.New(field.Type().Out(0)).Elem()
		lib.Set(reflect.ValueOf(deadLibrary{hang}))
		return []reflect.Value{lib}
	})
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(made)
	return cfg
}

// The timing wheel's library is dead from the start and stays so, however often it
// is replaced: leases are still renewed, and lost ones end.
func TestEngine_TimingWheelDead_LeasesSurvive(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"silent": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				hang := make(chan struct{})
				release := sync.OnceFunc(func() { close(hang) })
				if !hangs {
					release()
				}
				t.Cleanup(release)
				s := server(t)
				e := openOn(t, s, clock.System(), func(c *Config) {
					c.Lease = 3 * time.Second
					c.wheel = onDead(hang)
				})
				const n = 100
				var holds []*Hold
				for i := range n {
					holds = append(holds, mustLock(t, e.Mutex(fmt.Sprint("x", i))))
				}
				fixed := mustLock(t, e.Mutex("fixed"), Lease(2*time.Second))
				eventually(t, "each is renewed four times", func() bool { return e.Stats().Renewed >= 4*n || e.Stats().Held < n })
				for _, h := range holds {
					if err := h.Err(); err != nil {
						t.Fatalf("lost: %v", err)
					}
				}
				eventually(t, "the fixed lease ends by a timer", func() bool {
					select {
					case <-fixed.Done():
						return true
					default:
						return false
					}
				})
				if e.Stats().WheelRebuilds == 0 {
					t.Error("the wheel was not rebuilt: was its library dead?")
				}
				for _, h := range holds {
					mustUnlock(t, h)
				}
				eventually(t, "nothing is left on the server", func() bool { return s.Do("DBSIZE") == int64(0) })
				release()
			})
		})
	}
}

// The margin of a short lease is short. Its end is told within it though the timing wheel's
// library is dead: the server has not given the lock to another yet.
func TestEngine_TimingWheelDead_ShortLeaseEndsInTime(t *testing.T) {
	t.Parallel()
	// Three goroutines must run, one after the other, within the tenth of a lease: the watcher, the shard's, this test's.
	cputime.Steady(t, 20*time.Millisecond, func(t testing.TB) {
		hang := make(chan struct{})
		close(hang)
		e := openOn(t, server(t), clock.System(), func(c *Config) { c.wheel = onDead(hang) })
		const lease = 600 * time.Millisecond
		var all sync.WaitGroup
		for i := range 25 { // one after the other, so the watcher's looks favour none
			h := mustLock(t, e.Mutex(fmt.Sprint("x", i)), Lease(lease))
			until := oneOf(h).Until()
			all.Go(func() {
				<-h.Done()
				if late := e.clock.Now().Sub(until); late > lease/10 {
					t.Errorf("told %v after its end, and %v after the server's", late, late-lease/10)
				}
			})
			eventually(t, "a little later", func() bool { return e.clock.Now() > until.Add(20*time.Millisecond-lease*9/10) })
		}
		all.Wait()
	})
}

// closedClient is a client that can only be closed.
type closedClient struct{ env.Client }

func (closedClient) Close() error { return nil }

// A client begins to connect before the engine has it. What it tells meanwhile waits.
func TestEngine_EventsBeforeItHasItsClient_Wait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var heard atomic.Int32
		w := env.Real(clock.System())
		w.Client = func(_ resp.Config, events env.Events) env.Client {
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

// An entry that waits for its next name keeps nothing of the last one: a name may be long,
// and a shard keeps many.
func TestEngine_EntriesForReuse_KeepNoName(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	const n = 200
	for i := range n {
		mustUnlock(t, mustLock(t, e.Mutex(fmt.Sprint(i, strings.Repeat("x", maxName/2)))))
	}
	free, kept := 0, 0
	for i := range e.table.Shards() {
		sh := &e.table.Shards()[i]
		sh.Lock()
		for _, r := range sh.Locks.Free() {
			free++
			kept += len(r.Name)
		}
		sh.Unlock()
	}
	if free < n/4 || kept != 0 {
		t.Errorf("%d resources for use again keep %d bytes of names", free, kept)
	}
}

// A Lazy engine is for a service that starts before its server does.
func TestNew_Lazy_WaitsForItsServer(t *testing.T) {
	t.Parallel()
	tr := newTrouble(t)
	tr.net.Down()
	e := open(t, "redis://"+tr.net.Addr(), func(c *Config) { c.Lazy = true })
	f := e.Mutex("x").LockAsync(ctxT(t))
	if err := errOf(e.Mutex("y").Lock(ctxT(t), Wait(50*time.Millisecond))); !errors.Is(err, ErrUnavailable) {
		t.Errorf("meanwhile: %v", err)
	}
	tr.net.Up()
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
}

func mustAcquire(t testing.TB, s Semaphore, n int) *Permits {
	t.Helper()
	p, err := s.Acquire(ctxT(t), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	secret      = "hunter2hunter2"
	guardSecret = "guard3guard3"
)

// fullConfig has something in every field.
func fullConfig(addr string) Config {
	return Config{
		Topology: "sentinel", Addrs: []string{addr}, Master: "mymaster", SentinelUsername: "guard", SentinelPassword: guardSecret,
		AddrMap: func(a string) string { return a }, ShardedPubSub: "auto", Username: "ada", Password: secret,
		Credentials: func(context.Context) (string, string, error) { return "ada", secret, nil },
		DB:          2, TLS: &tls.Config{ServerName: "redis.example.org"}, ClientName: "billing",
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return nil, errors.New(secret) },
		NameMapper: func(n string) string { return n }, Lease: 20 * time.Second, Margin: time.Second, CommandTimeout: time.Second,
		Replicas: AllReplicas, AckTimeout: time.Second, DialTimeout: time.Second, CloseTimeout: time.Second, CommandConns: 2, EventLoops: 1,
		MaxInFlight: 10, Executor: func(f func()) { f() }, Logger: slog.New(slog.DiscardHandler),
		Observer: ObserverFuncs{OnRenewEnd: func(RenewEnd) {}}, Lazy: true,
	}
}

// shown is an engine with a password, and one sample or more of each exported type.
func shown(t *testing.T) (e *Engine, samples map[string][]any) {
	t.Helper()
	s := server(t, redistest.Password(secret))
	e = open(t, "redis://:"+secret+"@"+s.Addr())
	m := e.Mutex("orders:42")
	hold := mustLock(t, m)
	unlocked := mustLock(t, e.Mutex("done"))
	mustUnlock(t, unlocked)
	both := mustLockMany(t, e, []string{"both", "of them"})
	quorate := mustRedLock(t, RedLock(e.Mutex("quorate")))
	taken := errOf(m.TryLock(ctxT(t)))
	granted := e.Mutex("granted").LockAsync(ctxT(t))
	if _, err := granted.Await(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	failed := e.Mutex("").LockAsync(ctxT(t))
	refused := errOf(Open(ctxT(t), "redis://:"+secret+"x@"+s.Addr()))
	if taken == nil || refused == nil {
		t.Fatalf("%v, %v", taken, refused)
	}
	state, err := m.State(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	info, err := e.Inspect(ctxT(t), "orders:42")
	if err != nil {
		t.Fatal(err)
	}
	permits := mustAcquire(t, e.Semaphore("free"), 0)
	lost := &LostError{Name: "orders:42", Reason: NotRenewed}
	acks := &AckError{Name: "orders:42", Acked: 1, Wanted: 2, Cause: refused}
	cfg := fullConfig(s.Addr())
	return e, map[string][]any{
		"Engine":           {e, (*Engine)(nil)},
		"Config":           {cfg, e.cfg, Config{}, Config{Addrs: []string{"redis://ada:" + secret + "@h:1", "ada:" + secret + "@h", "h:1,password=" + secret, "redis://h?Pass=x@" + secret}}},
		"Mutex":            {m, Mutex{}, e.SpinMutex("orders:42"), e.FairMutex("orders:42"), e.FencedMutex("orders:42")},
		"RWMutex":          {e.RWMutex("orders:42"), RWMutex{}},
		"PermitSemaphore":  {e.PermitSemaphore("orders:42"), PermitSemaphore{}},
		"Semaphore":        {e.Semaphore("orders:42"), Semaphore{}},
		"Permits":          {permits, new(Permits), (*Permits)(nil)},
		"Latch":            {e.Latch("orders:42"), Latch{}},
		"Lock":             {e.PermitSemaphore("orders:42").Permits(2)},
		"Hold":             {hold, unlocked, both, both.Parts()[0], quorate, new(Hold), (*Hold)(nil)},
		"Future":           {m.LockAsync(ctxT(t)), granted, failed, unlocked.UnlockAsync(), (*Future[*Hold])(nil)},
		"MultiLock":        {e.Many("a", "b"), e.Many(someNames(100)...), Multi(), MultiLock{}},
		"QuorumLock":       {RedLock(m), RedLock(), QuorumLock{}},
		"Option":           {Lease(time.Second), Wait(time.Second), MaxHold(time.Minute), MinHold(time.Second), NonReentrant(), Acked(AllReplicas)},
		"ForceOption":      {IfHolder(hold.Owner())},
		"Replicas":         {AllReplicas, MajorityOfReplicas, Replicas(2)},
		"Observer":         {cfg.Observer, Observers(cfg.Observer, ObserverFuncs{})},
		"ObserverFuncs":    {cfg.Observer, ObserverFuncs{}},
		"Acquisition":      {Acquisition{Kind: "mutex", Name: "orders:42"}},
		"AcquireEnd":       {AcquireEnd{Outcome: Refused, Err: taken}, AcquireEnd{hold: oneOf(hold)}},
		"HoldEnd":          {HoldEnd{hold: oneOf(hold), Reason: RemovedOnServer}},
		"ReleaseEnd":       {ReleaseEnd{Err: refused}},
		"RenewEnd":         {RenewEnd{Server: s.Addr(), Holds: 2, Err: refused}},
		"ConnChange":       {ConnChange{Addr: s.Addr(), Role: "lane", Err: refused}},
		"Outcome":          {Granted, Outcome(200)},
		"State":            {state},
		"Holder":           {state.Holders[0]},
		"Stats":            {e.Stats()},
		"LockInfo":         {&LockInfo{Name: info.Name, Kind: info.Kind, Holders: info.Holders[:1]}},
		"HolderInfo":       {info.Holders[0]},
		"EngineInfo":       {info.Engines[0], *info.Engines[0]},
		"Use":              {Use{Engine: info.Engines[0], Name: "orders:42"}},
		"Cycle":            {Cycle{Waits: []Use{{Name: "orders:42"}}}},
		"LostReason":       {NotRenewed, LostReason(200)},
		"LostError":        {lost, *lost},
		"AckError":         {acks, *acks},
		"NotAcquiredError": {taken, *taken.(*NotAcquiredError), &NotAcquiredError{}, notAcquired("x", lockerr.Wrap(ErrUnavailable, refused)), didNotRun(taken)},
	}
}

// Whatever is printed, in whatever way, is short, holds no password, and does not touch
// what other goroutines write at the time.
func TestPrint_Everything_HasNoPassword(t *testing.T) {
	t.Parallel()
	e, samples := shown(t)
	busy, stop := context.WithCancel(context.Background())
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		for busy.Err() == nil {
			f := e.Mutex("orders:42").LockAsync(busy)
			_ = e.Mutex("busy").Do(busy, func(context.Context, *Hold) error { return nil })
			f.Abandon()
		}
	}()
	defer func() { stop(); receive(t, worked) }()
	redacttest.Every(t, samples, secret, guardSecret)
}

// Printing holds up nobody, and is not held up: not by a lock of a name, nor by a
// future that is being completed.
func TestPrint_Everything_TakesNoLock(t *testing.T) {
	t.Parallel()
	e, samples := shown(t)
	var unlock []func()
	hold := func(lock, release func()) {
		lock()
		unlock = append(unlock, release)
	}
	for i := range e.table.Shards() {
		hold(e.table.Shards()[i].Lock, e.table.Shards()[i].Unlock)
	}
	hold(e.calls.Lock, e.calls.Unlock)
	unlock = append(unlock, e.table.Recovery.Freeze())
	for _, f := range samples["Future"] {
		switch f := f.(type) {
		case *Future[*Hold]:
			if f != nil {
				hold(f.mu.Lock, f.mu.Unlock)
			}
		case *Future[struct{}]:
			hold(f.mu.Lock, f.mu.Unlock)
		}
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		for _, list := range samples {
			for _, v := range list {
				redacttest.Check(t, v, secret)
			}
		}
	}()
	receive(t, printed)
	for _, release := range unlock {
		release()
	}
}

// fmt cannot ask what lies in an unexported field. It finds nothing there but addresses.
func TestPrint_LocksInUnexportedFields_AreAddresses(t *testing.T) {
	t.Parallel()
	s := server(t, redistest.Password(secret))
	e := open(t, "redis://:"+secret+"@"+s.Addr())
	m := e.Mutex("orders:42")
	hidden := struct {
		lock Mutex
		spin Mutex
		hold *Hold
	}{m, e.SpinMutex("y"), mustLock(t, m)}
	for way, text := range redacttest.Prints(t, hidden) {
		redacttest.Secret(t, way, text, secret)
		if len(text) > 1000 {
			t.Errorf("%s: %d bytes", way, len(text))
		}
	}
	engines := struct{ locks *Engine }{e}
	for _, format := range []string{"%v", "%+v", "%#v"} {
		text := fmt.Sprintf(format, engines)
		redacttest.Secret(t, format, text, secret)
		if len(text) > 1000 {
			t.Errorf("%s of an Engine: %d bytes", format, len(text))
		}
	}
	if e.cfg.Password != "" || e.cfg.SentinelPassword != "" {
		t.Error("an engine keeps a password where reflection finds it")
	}
}
