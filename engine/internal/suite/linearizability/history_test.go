package linearizability

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// A history is what several engines do to a few names while the network and the
// server misbehave. Everything is drawn from one seed, which is printed; the order
// of events is the scheduler's, so a seed finds its way back only roughly.
//
//	PAWL_HISTORY=2m PAWL_HISTORY_SEED=1 go test -run TestHistory ./engine/internal/suite/linearizability
//
// What must hold, in every history:
//
//   - Exclusion: what two holds of a name certainly had never overlaps (register).
//   - Truth: the server has the field of a hold that is live here.
//   - Order: the history of each name is that of one mutex (porcupine).
//   - Liveness: when the faults have stopped everybody is served within seconds.
//   - Cleanliness: in the end nothing is left here or on the server.
type history struct {
	t        *testing.T
	kind     historyKind
	seed     uint64
	s        *redistest.Server
	engines  []*atomic.Pointer[engine.Engine]
	proxies  []*faultproxy.Proxy
	names    []string
	replaced []string // ids of engines that were closed; of the goroutine that closes them, until it has ended
	register register

	stop   chan struct{} // workers: finish what you are at
	healed time.Time     // when the last fault ended; read after stop is closed
}

// historyKind is a sort of history.
type historyKind struct {
	lease   time.Duration
	timeout time.Duration // CommandTimeout
	// thieves: third parties remove keys. Truth and order are not checked then, and
	// exclusion only between holds with no theft in between.
	thieves bool
	// stops: the server is stopped now and then, and executes late what it finds in
	// its sockets.
	stops bool
	// closes: engines are closed in the middle of it all, and others take their
	// places.
	closes bool
	// patience is how long anybody may wait once the faults have stopped.
	patience time.Duration
	// lock is the lock of a name; nil: a Mutex.
	lock func(e *engine.Engine, name string) engine.Mutex
	// scripts are what faults aim at; nil: those of a Mutex.
	scripts []*script.Script
	// tokens: each hold has one.
	tokens bool
}

// of makes it a history of locks of another kind.
func (k historyKind) of(lock func(e *engine.Engine, name string) engine.Mutex, scripts ...*script.Script) historyKind {
	k.lock, k.scripts = lock, append(scripts, script.Renew, script.Reenter, script.Leave)
	return k
}

func (k historyKind) ofFenced() historyKind {
	k.tokens = true
	return k.of(func(e *engine.Engine, name string) engine.Mutex { return e.FencedMutex(name) }, script.Fenced, script.Several, script.Several, script.Release)
}

func (k historyKind) ofFair() historyKind {
	return k.of(func(e *engine.Engine, name string) engine.Mutex { return e.FairMutex(name) }, script.Fair, script.Fair, script.FairRelease)
}

func TestHistoryWithShortLeases(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: 600 * time.Millisecond, timeout: 400 * time.Millisecond, stops: true})
}

// Here a missed wake-up is not mended by the end of a lease.
func TestHistoryWithLongLeases(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: time.Minute, timeout: time.Second, stops: true})
}

func TestHistoryWithThieves(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: 600 * time.Millisecond, timeout: 400 * time.Millisecond, thieves: true})
}

func TestHistoryWithEnginesThatClose(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: 600 * time.Millisecond, timeout: 400 * time.Millisecond, closes: true})
}

// Tokens rise, whatever happens to commands, connections, engines and keys.
func TestHistoryOfTokens(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: 600 * time.Millisecond, timeout: 400 * time.Millisecond, stops: true, thieves: true, closes: true}.ofFenced())
}

func TestHistoryOfQueuesWithShortLeases(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: 600 * time.Millisecond, timeout: 400 * time.Millisecond, stops: true}.ofFair())
}

func TestHistoryOfQueuesWithLongLeases(t *testing.T) {
	t.Parallel()
	runHistory(t, historyKind{lease: time.Minute, timeout: time.Second, stops: true}.ofFair())
}

const (
	historyEngines = 3
	historyWorkers = 6 // for each engine
	historyNames   = 5
	historyCold    = 200 // names that nobody else wants, mostly
)

// lengthAndSeed are those of a history: PAWL_HISTORY and PAWL_HISTORY_SEED say otherwise.
func lengthAndSeed(t *testing.T, length time.Duration) (time.Duration, uint64) {
	t.Helper()
	if v := os.Getenv("PAWL_HISTORY"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	if v := os.Getenv("PAWL_HISTORY_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PAWL_HISTORY_SEED=%d", seed)
	return length, seed
}

func runHistory(t *testing.T, kind historyKind) {
	length, seed := lengthAndSeed(t, 3*time.Second)
	kind.patience = 10 * time.Second
	h := &history{t: t, kind: kind, seed: seed, s: testkit.Server(t), stop: make(chan struct{})}
	h.register.start = time.Now()
	for i := range historyNames {
		h.names = append(h.names, fmt.Sprint("n", i))
	}
	rng := h.rand(0)
	for i := range historyEngines {
		h.proxies = append(h.proxies, faultproxy.New(t, "tcp", h.s.Addr()))
		h.engines = append(h.engines, new(atomic.Pointer[engine.Engine]))
		h.open(i, rng)
	}
	h.run(length)
}

// open makes an engine for a place. Its connections come up when they can.
func (h *history) open(i int, rng *rand.Rand) {
	anyTransport := func(c *resp.Config) {
		if rng.IntN(2) == 0 {
			c.Transport = resp.TransportStd
		}
	}
	e := testkit.OpenOn(h.t, anyTransport, "redis://"+h.proxies[i].Addr(), func(c *engine.Config) {
		c.Lease, c.CommandTimeout, c.DialTimeout, c.CloseTimeout = h.kind.lease, h.kind.timeout, time.Second, 2*time.Second
		c.Lazy = true
		c.CommandConns = 1 + rng.IntN(2)
	})
	h.engines[i].Store(e)
}

// replace closes an engine and puts another one in its place. What it held ends for
// its holders first, and is free then: for others that is as good as a theft.
func (h *history) replace(i int, rng *rand.Rand) {
	old := h.engines[i].Load()
	start, used := time.Now(), cputime.Now()
	if err := old.Close(); err != nil && !errors.Is(err, engine.ErrOutcomeUnknown) {
		h.t.Errorf("Close: %v", err)
	}
	if d := used.Elapsed(); d > h.kind.patience {
		h.t.Errorf("Close took %v", d)
	}
	h.replaced = append(h.replaced, old.ID())
	h.register.closed(start)
	if st := old.Stats(); st.Held != 0 || st.Waiting != 0 || testkit.Inside(old).Names != 0 {
		h.t.Errorf("a closed engine: %+v, %d names", st, testkit.Inside(old).Names)
	}
	h.open(i, rng)
}

// mayStay reports whether a key may be left in the end: a counter of tokens; or for a minute the queue of
// a name, with engines that were closed while the server was stopped or their connections cut.
func (h *history) mayStay(key string) bool {
	switch {
	case strings.HasPrefix(key, script.TokenPrefix):
		return h.kind.tokens
	case strings.HasPrefix(key, script.WaitersPrefix):
		places, _ := h.s.Do("ZRANGE", key, "0", "-1").([]any)
		return !slices.ContainsFunc(places, func(id any) bool { return !slices.Contains(h.replaced, id.(string)) })
	}
	return false
}

func (h *history) lock(e *engine.Engine, name string) engine.Mutex {
	if h.kind.lock == nil {
		return e.Mutex(name)
	}
	return h.kind.lock(e, name)
}

func (h *history) rand(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(h.seed, stream)) }

func (h *history) run(length time.Duration) {
	var workers, faults sync.WaitGroup
	for i := range historyEngines * historyWorkers {
		w := &worker{h: h, rng: h.rand(100 + uint64(i)), engine: h.engines[i%historyEngines]}
		workers.Go(w.run)
	}
	over := make(chan struct{})
	for i, p := range h.proxies {
		faults.Go(func() { newVandal(h, p, 200+uint64(i)).run(over) })
	}
	faults.Go(func() { newVandal(h, nil, 300).run(over) })
	if h.kind.closes {
		faults.Go(func() {
			rng := h.rand(400)
			for testkit.Pause(over, rand64(rng, 700*time.Millisecond)) {
				h.replace(rng.IntN(historyEngines), rng)
			}
		})
	}

	<-testkit.Within(h.t, length).Done()
	close(over)
	faults.Wait()
	h.healed = time.Now()
	close(h.stop)
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-testkit.Within(h.t, h.kind.patience*3/4).Done():
		h.report()
		<-done // the contexts of all waits end
	}
	h.checkLeftovers()
	h.register.check(h.t, h.kind)
}

// report logs what everybody is waiting for, for a test that is about to fail.
func (h *history) report() {
	for _, name := range h.names {
		h.t.Logf("%s on the server: %v, %v ms left", name, h.s.Do("HGETALL", name), h.s.Do("PTTL", name))
	}
	for i := range h.engines {
		e := h.engines[i].Load()
		h.t.Logf("engine %d, %s:", i, e.ID())
		testkit.Report(h.t, e)
	}
}

// checkLeftovers looks for what nobody uses any more.
func (h *history) checkLeftovers() {
	t := h.t
	for i := range h.engines {
		e := h.engines[i].Load()
		if h.kind.lease < 5*time.Second { // in-doubt owners are remembered for a lease
			testkit.Eventually(t, fmt.Sprintf("engine %d knows of no name any more", i), func() bool { return testkit.Inside(e).Names == 0 })
		}
		s := e.Stats()
		if s.Held != 0 || s.Waiting != 0 || s.Leaked != 0 {
			t.Errorf("engine %d: %+v", i, s)
		}
		in := testkit.Inside(e)
		if in.Out != 0 {
			t.Errorf("engine %d: %d paced commands were never answered", i, in.Out)
		}
		if in.Watched != 0 {
			t.Errorf("engine %d watches %d contexts", i, in.Watched)
		}
	}
	for i := range h.engines {
		e := h.engines[i].Load()
		if err := e.Close(); err != nil {
			t.Errorf("engine %d: Close: %v", i, err)
		}
	}
	wantNoKeys(t, h.s, h.mayStay)
	testkit.Eventually(t, "the server has no channel", func() bool {
		list, _ := h.s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == 0
	})
}

// wantNoKeys fails the test unless the server has only keys that may be left.
func wantNoKeys(t *testing.T, s *redistest.Server, mayBeLeft func(key string) bool) {
	t.Helper()
	var left []string
	defer func() {
		if t.Failed() && len(left) > 0 {
			t.Logf("the server has %v", left)
		}
	}()
	testkit.Eventually(t, "the server has no key that must not be left", func() bool {
		left = left[:0]
		keys, _ := s.Do("KEYS", "*").([]any)
		for _, key := range keys {
			if !mayBeLeft(key.(string)) {
				left = append(left, key.(string))
			}
		}
		return len(left) == 0
	})
}
