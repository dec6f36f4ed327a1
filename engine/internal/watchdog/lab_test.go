package watchdog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
	"github.com/pawl-lock/pawl/wheel"
)

const (
	lease  = 30 * time.Second
	margin = 3 * time.Second
)

// lab is a Renewer on a clock that moves when told to, with a network that the test
// answers for.
type lab struct {
	t     testing.TB
	clock *clock.Fake
	wheel *wheel.Wheel
	r     *Renewer

	mu     sync.Mutex
	out    []*sending // without an answer
	total  int        // scripts sent
	rounds []BatchResult
	down   error // every script fails with it inside of Submit
}

// sending is a script that was handed to the network.
type sending struct {
	chunk *batch
	at    clock.Instant
}

func newLab(t testing.TB) *lab {
	l := &lab{t: t, clock: clock.NewFake()}
	// One worker runs the timers in order, so that a timer of our own tells when all
	// before it have returned.
	l.wheel = wheel.New(wheel.Config{Clock: l.clock, Workers: 1})
	t.Cleanup(l.wheel.Close)
	l.r = New(Config{
		Clock: l.clock, Wheel: l.wheel, Draw: rand.N[time.Duration], Lease: lease, Submit: l.submit,
		OnBatch: func(r BatchResult) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.rounds = append(l.rounds, r)
		},
	})
	return l
}

func (l *lab) submit(_ uint16, req resp.DurableRequest) {
	k := req.(*batch)
	l.mu.Lock()
	l.total++
	down := l.down
	if down == nil {
		l.out = append(l.out, &sending{k, l.clock.Now()})
	}
	l.mu.Unlock()
	if down != nil {
		k.Complete(resp.Reply{Err: down})
	}
}

func (l *lab) sent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

func (l *lab) lane(down error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

// take waits for n scripts that are out and takes them.
func (l *lab) take(n int) []*sending {
	l.t.Helper()
	var out []*sending
	eventually(l.t, fmt.Sprintf("%d scripts are out", n), func() bool {
		l.settle()
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.out) != n {
			return false
		}
		out, l.out = l.out, nil
		return true
	})
	return out
}

// settle waits until all that is due has happened.
func (l *lab) settle() {
	l.t.Helper()
	eventually(l.t, "the renewer is at rest", func() bool {
		var b barrier
		b.passed = make(chan struct{})
		b.timer.Init(&b)
		l.wheel.Schedule(&b.timer, l.clock.Now())
		<-b.passed
		return l.busy() == ""
	})
}

// barrier is a timer that tells that it fired.
type barrier struct {
	timer  wheel.Timer
	passed chan struct{}
}

// Fire implements wheel.Task.
func (b *barrier) Fire(*wheel.Timer, clock.Instant) { close(b.passed) }

// busy says why the renewer is not at rest, or "".
func (l *lab) busy() string {
	now := l.clock.Now()
	l.mu.Lock()
	out := len(l.out)
	l.mu.Unlock()
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.mu.closed {
		return ""
	}
	for _, c := range l.r.mu.cohorts {
		if c.due <= now {
			return "a cohort is due"
		}
	}
	flying := 0
	for _, k := range l.r.mu.chunks.InOrder() {
		switch {
		case k.state == waiting && k.retries+k.step == 0:
			return "a chunk is being filled"
		case k.state == inFlight:
			flying++
		}
	}
	if flying != out {
		return fmt.Sprintf("%d chunks are in flight, %d submitted", flying, out)
	}
	return ""
}

// advance moves the clock and waits until everything due has happened.
func (l *lab) advance(d time.Duration) {
	l.t.Helper()
	l.clock.Advance(d)
	l.settle()
}

// answer completes a script with a code for each member of its list.
func (l *lab) answer(s *sending, code func(i int) int64) {
	n := len(s.chunk.list)
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", n)
	for i := range n {
		fmt.Fprintf(&b, ":%d\r\n", code(i))
	}
	l.reply(s, b.String())
}

func all(code int64) func(int) int64 { return func(int) int64 { return code } }

// reply completes a script with raw RESP.
func (l *lab) reply(s *sending, raw string) {
	v, n, err := wire.Decode([]byte(raw))
	if err != nil || n != len(raw) {
		l.t.Fatalf("bad RESP %q: %v", raw, err)
	}
	s.chunk.Complete(resp.Reply{Value: v, Sent: s.at, Now: l.clock.Now()})
}

// fail completes a script with an error.
func (l *lab) fail(s *sending, err error) { s.chunk.Complete(resp.Reply{Err: err}) }

// subject is a hold as the engine has them, without an engine.
type subject struct {
	l *lab
	m Member
	n int
	k kind.Renewal

	until atomic.Int64 // written under mu

	mu       sync.Mutex
	over     bool
	overAt   clock.Instant
	stuck    bool // a renewal cannot move the end: MaxHold
	renewed  []clock.Instant
	gone     []int64
	notified int // calls of Renewed and Gone
}

func (l *lab) subject(n int) *subject {
	s := &subject{l: l, n: n}
	s.until.Store(int64(l.clock.Now().Add(lease - margin)))
	s.m.Init(s, uint16(n%3))
	return s
}

// hold makes a subject whose renewal is due after the given time.
func (l *lab) hold(n int, due time.Duration) *subject {
	s := l.subject(n)
	l.r.Join(&s.m, l.clock.Now().Add(due))
	return s
}

func (l *lab) holds(n int, due time.Duration) []*subject {
	all := make([]*subject, n)
	for i := range all {
		all[i] = l.hold(i, due)
	}
	return all
}

func (s *subject) Renewal(now clock.Instant) (script.Renewal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checkLocked(now) {
		return script.Renewal{}, false
	}
	return script.Renewal{Key: fmt.Sprint("k", s.n), Owner: script.Owner{Engine: "e", ID: int64(s.n)}, Lease: lease}, true
}

// checkLocked ends the subject if its time is over, and reports whether it is live.
func (s *subject) checkLocked(now clock.Instant) bool {
	if !s.over && now >= s.Until() {
		s.endLocked(now)
	}
	return !s.over
}

func (s *subject) endLocked(now clock.Instant) {
	s.over, s.overAt = true, now
	s.l.r.Leave(&s.m)
}

func (s *subject) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.endLocked(s.l.clock.Now())
	}
}

// Until may be called under the Renewer's lock, but never takes it.
func (s *subject) Wants() resp.Acks     { return 0 }
func (s *subject) Kind() kind.Renewal   { return s.k }
func (s *subject) Until() clock.Instant { return clock.Instant(s.until.Load()) }

func (s *subject) Renewed(sent, now clock.Instant, d time.Duration, _ int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notified++
	if d != lease {
		s.l.t.Errorf("subject %d: renewed for %v", s.n, d)
	}
	if !s.checkLocked(now) {
		return
	}
	s.renewed = append(s.renewed, sent)
	if !s.stuck {
		s.until.Store(max(s.until.Load(), int64(sent.Add(lease-margin))))
	}
	s.l.r.JoinNext(&s.m, now)
}

func (s *subject) Gone(code int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notified++
	s.gone = append(s.gone, code)
	if !s.over {
		s.endLocked(s.l.clock.Now())
	}
}

func (s *subject) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over
}

func (s *subject) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.renewed)
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20s: %s", what)
		}
		time.Sleep(50 * time.Microsecond) // a poll: the deadline above decides
	}
}
