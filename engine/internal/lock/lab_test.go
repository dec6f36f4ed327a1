package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// polling is a kind whose waiters poll, fenced one whose grants are counted,
// permits one that several hold, reading one that is joined.
const (
	polling = 2
	fenced  = 3
	queued  = 4
	permits = 5
	reading = 6
)

// lab is a Port in which nothing happens by itself: it notes what it is asked for.
type lab struct {
	t         *testing.T
	cfg       Config
	count     Counters
	now       clock.Instant
	ids       int64
	down      bool
	closing   bool
	clustered bool          // a message may be missed
	paused    clock.Instant // until then; 0: no pause
	idle      []string      // names that have gone
	released  []int64       // owners whose releases were answered
	ahead     *Entry        // the writers of a name, if it has any; and a reader
	behind    *Entry
	readers   *Readers // of a name that is read
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, now: clock.Instant(time.Hour), cfg: Config{
		Lease: 30 * time.Second, CommandTimeout: 3 * time.Second, AckTimeout: time.Second,
	}}
	return l
}

func (l *lab) Config() *Config                             { return &l.cfg }
func (l *lab) Counters() *Counters                         { return &l.count }
func (l *lab) Now() clock.Instant                          { return l.now }
func (l *lab) Stamp() clock.Instant                        { return l.now }
func (l *lab) Draw(d time.Duration) time.Duration          { return d / 2 }
func (l *lab) NewID() int64                                { l.ids++; return l.ids }
func (l *lab) Closing() bool                               { return l.closing }
func (l *lab) Closed() bool                                { return l.closing }
func (l *lab) Up(uint64) bool                              { return !l.down }
func (l *lab) Trouble(uint64) error                        { return nil }
func (l *lab) Clustered() bool                             { return l.clustered }
func (l *lab) ServerOf(uint64) ServerID                    { return 1 }
func (l *lab) Pause(_ *Entry, at clock.Instant)            { l.paused = at }
func (l *lab) Unstalled(*Entry)                            {}
func (l *lab) Idle(r *Entry)                               { l.idle = append(l.idle, r.Name) }
func (l *lab) Ahead(*Entry) *Entry                         { return l.ahead }
func (l *lab) Behind(r *Entry) bool                        { return r == l.ahead && l.behind.Blocked() == BehindWriter }
func (l *lab) NotPublished(string)                         {}
func (l *lab) Refused(Outcome)                             {}
func (l *lab) AckError(uint8, string, Ack) error           { return errors.New("too few replicas") }
func (l *lab) LossError(_ uint8, _ string, why Loss) error { return loss(why) }
func (l *lab) Traits(kind uint8) *Traits {
	return &Traits{Polls: kind == polling, LocalHandOver: kind < fenced, Batches: kind <= fenced, ServerQueue: kind == queued, MultiHolder: kind == permits, PerRequestEntry: kind == reading, JoinsReaders: kind == reading}
}
func (l *lab) Readers(*Entry) *Readers { return l.readers }
func (l *lab) NewEntry(r *Entry, _ uint8) *Entry {
	return &Entry{Port: l, Name: r.Name, Route: r.Route}
}
func (l *lab) Released(_ *Entry, _ uint8, _ ServerID, id int64, _, _ clock.Instant) {
	l.released = append(l.released, id)
}

// loss is the error of a hold that was lost.
type loss Loss

func (l loss) Error() string { return "lost" }

// tenant is the engine's side of a hold.
type tenant struct {
	Hold
	renewed  bool // it has a place among the renewals
	soon     bool // and that is now
	alarm    clock.Instant
	ended    int
	why      Loss
	notified bool
	finished bool
}

func (l *lab) NewGrant(*Entry) *Hold { return l.NewHold(&Hold{Grant: new(Grant)}) }

func (l *lab) NewHold(of *Hold) *Hold {
	h := new(tenant)
	h.Port, h.Grant = h, of.Grant
	return &h.Hold
}

func (h *tenant) RenewFirst(clock.Instant) { h.renewed = true }
func (h *tenant) RenewNext(clock.Instant)  { h.renewed = true }
func (h *tenant) RenewSoon()               { h.soon = true }
func (h *tenant) WakeAt(at clock.Instant)  { h.alarm = at }
func (h *tenant) Ended(why Loss)           { h.ended++; h.why = why }
func (h *tenant) Lost(Loss)                {}
func (h *tenant) GrantOver()               { h.renewed = false }
func (h *tenant) Over()                    { h.alarm, h.finished = 0, true }
func (h *tenant) CloseDone()               { h.notified = true }

// caller is who asks for a lock.
type caller struct {
	Request
	settled   int
	delivered int
	hold      *tenant
	err       error
	giveUp    clock.Instant
}

func (c *caller) OnResult(h *Hold, why error) {
	c.settled++
	if c.err = why; h != nil {
		c.hold = h.Port.(*tenant)
	}
}
func (c *caller) Deliver() { c.delivered++ }
func (c *caller) GiveUpAt(at clock.Instant) {
	c.giveUp = at
	c.SetDeadline(c)
}
func (c *caller) Over() { c.giveUp = 0 }

// bell is the alarm and the channel of a wait.
type bell struct {
	Subscription
	at        clock.Instant
	listening bool
	of        int64
}

func (l *lab) NewSubscription() *Subscription {
	w := new(bell)
	w.Port = w
	return &w.Subscription
}

func (w *bell) RingAt(at clock.Instant)               { w.at = at }
func (w *bell) Silence()                              { w.at = 0 }
func (w *bell) Listen(_ *Entry, _ uint8, owner int64) { w.listening, w.of = true, owner }
func (w *bell) Unlisten()                             { w.listening = false }

// recordAttempt is the timer of a compensation.
type note struct {
	Compensation
	at clock.Instant
}

func (l *lab) NewCompensation() *Compensation {
	d := new(note)
	d.Port = d
	return &d.Compensation
}

func (d *note) WakeAt(at clock.Instant) { d.at = at }
func (d *note) Over()                   { d.at = 0 }

// leaver is who unlocks.
type leaver struct {
	Unlock
	delivered int
}

func (u *leaver) Deliver() { u.delivered++ }

// name makes an entry.
func (l *lab) name() *Entry {
	r := &Entry{Port: l}
	r.Reset("x", 0)
	return r
}

// ask has somebody ask for the lock, by Lock or TryLock.
func (l *lab) ask(r *Entry, once bool) *caller {
	l.t.Helper()
	c := new(caller)
	c.Init(c)
	c.Try = once
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	return c
}

// does makes a transition, and tells the callers.
func (l *lab) does(transition func(rd *Ready)) (sent *Entry) {
	var rd Ready
	transition(&rd)
	rd.Deliver()
	return rd.Send
}

// reply answers the command in flight.
func (l *lab) reply(r *Entry, o Outcome) *Entry {
	if o.Sent == 0 {
		o.Sent = l.now
	}
	o.Now = l.now
	return l.does(func(rd *Ready) { r.Replied(&o, rd) })
}

// is fails the test unless the command in flight is the one.
func (l *lab) is(r *Entry, want CommandKind) {
	l.t.Helper()
	if r.Cmd.Action != want {
		l.t.Fatalf("in flight is command %d, want %d (%+v)", r.Cmd.Action, want, r.View())
	}
}
