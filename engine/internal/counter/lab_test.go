package counter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"

	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// lab surrounds a Counter with a world in which nothing happens by itself: its shard has the world of port.
type lab struct {
	t       *testing.T
	counter *Counter
	locks   lock.Shard
	cfg     lock.Config
	shard   Shard
	now     clock.Instant
	trouble error
	refused error

	timer            clock.Instant // 0: not set
	listens, unheard bool
	channels         int // asked for so far
	channel          uint64
	idle             int
	unstalled        int

	sent     []string      // commands, as they were sent
	outSince clock.Instant // when the last one was
	stalled  bool          // recovery has it
	notified []string      // names of callers, in order
}

func newLab(t *testing.T, k Kind) *lab {
	l := &lab{t: t, now: clock.Instant(time.Hour), cfg: lock.Config{HandOvers: 10, HandOverFor: 10 * time.Millisecond}}
	l.locks.Init(port{l: l}, &l.cfg, nil)
	l.shard.Locks = &l.locks
	l.counter = &Counter{Shard: &l.shard, Name: "n", Kind: k}
	return l
}

// port is the lock.Port of its shard. Counters ask it for no more than this.
type port struct {
	lock.Port
	l *lab
}

func (p port) Now() clock.Instant                 { return p.l.now }
func (p port) Draw(d time.Duration) time.Duration { return d / 2 }
func (p port) Lane(uint64) (bool, error)          { return p.l.trouble == nil, p.l.trouble }

// caller is one who asked for something.
type caller struct {
	Op
	l       *lab
	name    string
	settled int
	answer  int64
	why     error
	permits *Permits
	ended   bool // its permits are not held any more
}

func (c *caller) Granted() *Permits {
	c.permits = &Permits{Port: c}
	return c.permits
}

func (c *caller) Complete(answer int64, why error) {
	if c.settled++; c.settled > 1 {
		c.l.t.Fatalf("%s has two verdicts", c.name)
	}
	c.answer, c.why = answer, why
	c.l.notified = append(c.l.notified, c.name)
}

func (c *caller) Ended() { c.ended = true }

// do makes a transition, and does what it leaves to be done.
func (l *lab) do(f func(rd *Ready)) {
	l.t.Helper()
	var rd Ready
	f(&rd)
	l.finish(&rd)
}

func (l *lab) finish(rd *Ready) {
	l.t.Helper()
	if rd.Counter != nil {
		l.apply(rd)
	}
	if rd.Send {
		l.sent, l.outSince = append(l.sent, l.written()), l.now
	}
	if rd.Disconnected && !l.counter.Out { // else recovery was told before that nobody wants it
		if l.stalled {
			l.t.Fatal("recovery has it twice")
		}
		l.stalled = true
	}
	rd.Deliver()
}

// apply does what is done under the lock.
func (l *lab) apply(rd *Ready) {
	l.timer = l.counter.Due()
	if seq := l.counter.Channel(); seq != l.channel {
		if l.channel, l.listens = seq, seq != 0; l.listens {
			l.channels++
		}
	}
	l.unheard = l.unheard || rd.NotPublished
	if rd.Refused != nil {
		l.refused = rd.Refused
	}
	if rd.Unstalled {
		l.unstalled++
		l.stalled = false
	}
	if l.counter.Out {
		l.idle++
	}
}

// written is the command as it is sent: its number, and its operations.
func (l *lab) written() string {
	c := &l.counter.Cmd
	text := fmt.Sprint(c.Number)
	for _, op := range c.Ops {
		text += fmt.Sprintf(" %c%d", op.Letter(), op.N)
	}
	if c.Asks {
		text += " v"
	}
	return text
}

// took returns the commands that were sent since.
func (l *lab) took() string {
	text := strings.Join(l.sent, ", ")
	l.sent = nil
	return text
}

func (l *lab) wantSent(want string) {
	l.t.Helper()
	if got := l.took(); got != want {
		l.t.Fatalf("sent: %q, want %q", got, want)
	}
}

// confirmedSeq returns who was told something since.
func (l *lab) heard() string {
	text := strings.Join(l.notified, " ")
	l.notified = nil
	return text
}

// ask asks for something: a3 acquires three, t1 tries to acquire one.
func (l *lab) ask(name, what string) *caller {
	l.t.Helper()
	c := &caller{l: l, name: name}
	var n int64
	_, _ = fmt.Sscanf(what[1:], "%d", &n)
	letter := OpKind(what[0])
	if letter == 't' {
		letter, c.Try = Acquire, true
	}
	c.Init(c, letter, n)
	l.do(func(rd *Ready) { l.counter.Admit(&c.Op, rd) })
	return c
}

// answer answers the command that is out.
func (l *lab) answer(codes ...int64) { l.t.Helper(); l.reply(Outcome{Answers: codes}) }

// fail has the command that is out end with that verdict.
func (l *lab) fail(v lock.Result) { l.t.Helper(); l.reply(Outcome{Verdict: v, Err: errLab}) }

var errLab = fmt.Errorf("the server says no")

func (l *lab) reply(o Outcome) {
	l.t.Helper()
	if !l.counter.Cmd.out {
		l.t.Fatal("nothing is out")
	}
	if o.Now = l.now; o.Sent == 0 {
		o.Sent = l.now.Add(-time.Millisecond)
	}
	l.do(func(rd *Ready) { l.counter.Replied(&o, rd) })
}

// release gives permits back.
func (l *lab) release(c *caller) *caller {
	l.t.Helper()
	r := &caller{l: l, name: "release of " + c.name}
	r.Init(r, Release, 0)
	l.do(func(rd *Ready) {
		if err := c.permits.Release(&r.Op, rd); err != nil {
			l.t.Fatal(err)
		}
	})
	return r
}

// subscribed confirms what was asked for.
func (l *lab) subscribed() {
	l.t.Helper()
	l.do(func(rd *Ready) { l.counter.OnChannel(serial.Confirmed, l.channel, false, rd) })
}

// announce has a message come that does not say that a latch is open.
func (l *lab) announce() {
	l.t.Helper()
	l.do(func(rd *Ready) { l.counter.OnChannel(serial.Message, 0, false, rd) })
}

func (l *lab) resume() {
	l.t.Helper()
	if !l.stalled {
		l.t.Fatal("recovery does not have it")
	}
	l.stalled = false
	l.do(l.counter.Reconnected)
}

func (l *lab) ring() { l.t.Helper(); l.fire(l.counter.alarm) }

// pauseOver ends a pause.
func (l *lab) pauseOver() { l.t.Helper(); l.fire(l.counter.pauseEnds) }

// fire has the timer fire at that instant, or now if that is past.
func (l *lab) fire(at clock.Instant) {
	l.t.Helper()
	if at == 0 || l.timer == 0 || l.timer > at {
		l.t.Fatalf("the timer is set to %v, and not to %v", l.timer, at)
	}
	l.now = max(l.now, at)
	l.fired()
}

// fired has the timer fire now, whether it is due or not.
func (l *lab) fired() {
	l.t.Helper()
	l.timer = 0
	l.do(func(rd *Ready) { l.counter.Fired(l.now, rd) })
}

// wantRest fails the test unless nothing is left.
func (l *lab) wantRest() {
	l.t.Helper()
	if !l.counter.Out || l.idle != 1 || l.timer != 0 || l.listens || l.stalled || l.locks.Count.Pending != 0 || l.locks.Count.Held != 0 {
		l.t.Errorf("something is left: %+v, %+v", l.counter.View(), l)
	}
}
