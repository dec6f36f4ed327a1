package engine

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/redacttest"
	"github.com/pawl-lock/pawl/internal/redistest"
)

const (
	secret      = "hunter2hunter2"
	guardSecret = "guard3guard3"
)

// fullConfig has something in every field.
func fullConfig(addr string) Config {
	return Config{
		Topology: "sentinel", Addrs: []string{addr}, Master: "mymaster", SentinelUsername: "guard", SentinelPassword: guardSecret,
		AddrMap: func(a string) string { return a }, Sharding: "auto", Username: "ada", Password: secret,
		Credentials: func(context.Context) (string, string, error) { return "ada", secret, nil },
		DB:          2, TLS: &tls.Config{ServerName: "redis.example.org"}, ClientName: "billing",
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return nil, errors.New(secret) },
		NameMapper: func(n string) string { return n }, Lease: 20 * time.Second, Margin: time.Second, CommandTimeout: time.Second,
		Replicas: AllReplicas, AckTimeout: time.Second, DialTimeout: time.Second, CloseTimeout: time.Second, Lanes: 2, EventLoops: 1,
		MaxInFlight: 10, Executor: func(f func()) { f() }, Logger: slog.New(slog.DiscardHandler),
		Hooks: Hooks{Lost: func(HoldEvent) {}}, Lazy: true,
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
		"Hooks":            {cfg.Hooks, Hooks{}},
		"AcquiredEvent":    {AcquiredEvent{Kind: "mutex", Name: "orders:42", Err: taken}},
		"HoldEvent":        {HoldEvent{Name: "orders:42", Owner: hold.Owner(), Reason: GoneOnServer}},
		"RenewedEvent":     {RenewedEvent{Node: s.Addr(), Holds: 2, Err: refused}},
		"ConnEvent":        {ConnEvent{Addr: s.Addr(), Role: "lane", Err: refused}},
		"State":            {state},
		"Holder":           {state.Holders[0]},
		"Stats":            {e.Stats()},
		"LostReason":       {NotRenewed, LostReason(200)},
		"LostError":        {lost, *lost},
		"AckError":         {acks, *acks},
		"NotAcquiredError": {taken, *taken.(*NotAcquiredError), &NotAcquiredError{}, notAcquired("x", reason.Because(ErrUnavailable, refused)), didNotRun(taken)},
	}
}

// Whatever is printed, in whatever way, is short, holds no password, and does not touch
// what other goroutines write at the time.
func TestNothingThatIsPrintedTellsAPassword(t *testing.T) {
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
func TestPrintingTakesNoLock(t *testing.T) {
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
	hold(e.hooks.mu.Lock, e.hooks.mu.Unlock)
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
func TestLocksInUnexportedFieldsPrintAddresses(t *testing.T) {
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

// pprof.Handler serves Stats as JSON. Its readers have no list of numbers at hand.
func TestReasonsAreTextInJSON(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`{"no renewal was acknowledged in time":3,"the engine was closed":1}`: Stats{Lost: map[LostReason]uint64{NotRenewed: 3, EngineClosed: 1}}.Lost,
		`{"Name":"x","Owner":"o","Reason":"its lease ended"}`:                 HoldEvent{Name: "x", Owner: "o", Reason: LeaseEnded},
		`{"Name":"x","Owner":"o","Reason":""}`:                                HoldEvent{Name: "x", Owner: "o"},
	} {
		text, err := json.Marshal(v)
		if err != nil || string(text) != want {
			t.Errorf("%s, %v\nwant %s", text, err, want)
		}
	}
}

func TestTextsSayWhatSomethingIs(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("orders:42")
	h := mustLock(t, m)
	granted := m.LockAsync(h.Context(ctxT(t)))
	if _, err := granted.Await(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Addrs: []string{"h:1"}, Password: secret, DB: 2, Lease: 20 * time.Second, Replicas: MajorityOfReplicas, TLS: new(tls.Config)}
	for want, v := range map[string]any{
		"Engine(" + e.ID() + " at standalone " + s.Addr() + ")": e,
		`Mutex("orders:42")`:                     m,
		`SpinMutex("orders:42")`:                 e.SpinMutex("orders:42"),
		`Hold("orders:42" of ` + h.Owner() + `)`: h,
		`FairMutex("orders:42")`:                 e.FairMutex("orders:42"),
		`Reader("orders:42")`:                    e.RWMutex("orders:42").Reader(),
		`[Backoff(1ms, 64ms)]`:                   []Option{Backoff(time.Millisecond, 64*time.Millisecond)},
		`[Lease(10s) Acked(all) NonReentrant()]`: []Option{Lease(10 * time.Second), Acked(AllReplicas), NonReentrant()},
		`Config{Addrs:[h:1] Password:*** DB:2 TLS:set Lease:20s Replicas:majority}`: cfg,
	} {
		if got := fmt.Sprint(v); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
