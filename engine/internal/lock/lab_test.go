package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// polling is a kind whose waiters poll, fenced one whose grants are counted,
// permits one that several hold, reading one that is joined, racer one whose engines queue.
const (
	polling = 2
	fenced  = 3
	queued  = 4
	permits = 5
	reading = 6
	racer   = 7
)

// lab is a shard, and a Port in which nothing happens by itself: it notes what it is asked for.
type lab struct {
	Shard
	t        *testing.T
	cfg      Config
	now      clock.Instant
	ids      int64
	down     bool
	paused   clock.Instant // until then; 0: no pause
	gone     int           // entries
	released []int64       // owners whose releases were answered
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, now: clock.Instant(time.Hour), cfg: Config{
		Lease: 30 * time.Second, CommandTimeout: 3 * time.Second, AckTimeout: time.Second, LongestSleep: LongestSleep,
	}}
	l.Init(l, &l.cfg, kinds)
	return l
}

// kinds are the traits of the kinds above.
var kinds = []Traits{
	0:       {LocalHandOver: true, Batches: true},
	1:       {LocalHandOver: true, Batches: true},
	polling: {Waiting: Polling, LocalHandOver: true, Batches: true},
	fenced:  {Batches: true},
	queued:  {Waiting: Queueing},
	permits: {Entries: PerGrant},
	reading: {Entries: PerReader},
	racer:   {Waiting: Racing, LocalHandOver: true, Batches: true},
}

func (l *lab) Now() clock.Instant                          { return l.now }
func (l *lab) Stamp() clock.Instant                        { return l.now }
func (l *lab) Draw(d time.Duration) time.Duration          { return d / 2 }
func (l *lab) NewID() int64                                { l.ids++; return l.ids }
func (l *lab) Up(uint64) bool                              { return !l.down }
func (l *lab) Trouble(uint64) error                        { return nil }
func (l *lab) ServerOf(uint64) ServerID                    { return 1 }
func (l *lab) Pause(_ *Entry, at clock.Instant)            { l.paused = at }
func (l *lab) Unstalled(*Entry)                            {}
func (l *lab) Emptied()                                    {}
func (l *lab) NotPublished(string)                         {}
func (l *lab) Refused(Outcome)                             {}
func (l *lab) LossError(_ uint8, _ string, why Loss) error { return loss(why) }
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

func (h *tenant) Renew(when Renewal, _ clock.Instant) {
	switch when {
	case RenewSoon:
		h.soon = true
	case RenewNoMore:
		h.renewed = false
	default:
		h.renewed = true
	}
}
func (h *tenant) SetTimer(at clock.Instant) { h.alarm, h.finished = at, at == 0 }
func (h *tenant) Ended(why Loss)            { h.ended++; h.why = why }
func (h *tenant) Lost(Loss)                 {}
func (h *tenant) CloseDone()                { h.notified = true }

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
	calls     bool // it listens for them
	of        int64
}

func (l *lab) NewSubscription() *Subscription {
	w := new(bell)
	w.Port = w
	return &w.Subscription
}

func (w *bell) SetTimer(at clock.Instant)             { w.at = at }
func (w *bell) Listen(_ *Entry, _ uint8, owner int64) { w.listening, w.of = true, owner }
func (w *bell) Unlisten()                             { w.listening = false }
func (w *bell) ListenForCalls(*Entry, uint8)          { w.calls = true }
func (w *bell) UnlistenForCalls()                     { w.calls = false }

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

func (d *note) SetTimer(at clock.Instant) { d.at = at }

// leaver is who unlocks.
type leaver struct {
	Unlock
	delivered int
}

func (u *leaver) Deliver() { u.delivered++ }

// name makes an entry.
func (l *lab) name() *Entry {
	r := &Entry{Shard: &l.Shard}
	l.attach(r)
	return r
}

// attach has an entry serve the name, perhaps again.
func (l *lab) attach(r *Entry) {
	r.Name, r.Detached, r.refused, r.headNext = "x", false, 0, false
	if r.member == 0 {
		l.entries[r.Name] = r
	}
}

// cell makes an entry for a reader of the name.
func (l *lab) cell() *Entry { return l.makeInGroup("x", 0, 0) }

// ask has somebody ask for the lock, by Lock or TryLock.
func (l *lab) ask(r *Entry, once bool) *caller { return l.admit(r, func(c *caller) { c.Try = once }) }

// askAs has somebody wait for the lock, of a kind.
func (l *lab) askAs(r *Entry, kind uint8) *caller {
	return l.admit(r, func(c *caller) { c.Kind = kind })
}

// admit has somebody ask for the lock, as want says.
func (l *lab) admit(r *Entry, want func(c *caller)) *caller {
	if r.Detached {
		l.attach(r)
	}
	c := new(caller)
	c.Init(c)
	want(c)
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	return c
}

// giveUp has somebody stop waiting.
func (l *lab) giveUp(c *caller) {
	l.does(func(rd *Ready) { c.Cancel(lockerr.Cancel{Cause: errors.New("enough")}, rd) })
}

// does makes a transition, and tells the callers.
func (l *lab) does(transition func(rd *Ready)) (sent *Entry) {
	var rd Ready
	transition(&rd)
	rd.Deliver()
	l.gone, l.free = l.gone+len(l.free), nil // an entry serves one name here
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
