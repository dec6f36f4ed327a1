package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
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

// lab is a shard, and a driver in which nothing happens by itself: it notes the effects.
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
func (l *lab) Lane(uint64) (up bool, trouble error)        { return !l.down, nil }
func (l *lab) ServerOf(uint64) ServerID                    { return 1 }
func (l *lab) LossError(_ uint8, _ string, why Loss) error { return loss(why) }

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
}

func (c *caller) NewHold(_ *Entry, of *Hold) *Hold {
	h := new(tenant)
	h.Handle, h.Grant = h, new(Grant)
	if of != nil {
		h.Grant = of.Grant
	}
	return &h.Hold
}

// finished reports whether the engine has nothing to do with the hold any more, its timer included.
func (h *tenant) finished() bool { return h.state == over && h.alarm == 0 }

// settle does the effects, as a driver does before it gives the shard's lock back.
func (l *lab) settle() {
	for _, e := range l.Effects() {
		switch e.Kind {
		case HoldTimer:
			e.Hold.Handle.(*tenant).alarm = e.At
		case SubscriptionTimer:
			bellOf(e.Subscription).at = e.At
		case CompensationTimer:
			noteOf(e.Compensation).at = e.At
		case Pause:
			l.paused = e.At
		case GiveUpAt:
			if a := e.Request; !a.Ended() && a.More().Deadline == nil {
				a.Handle.(party).giveUpAt(e.At)
			}
		case Renew:
			e.Hold.Handle.(*tenant).renewal(e.When)
		case Listen:
			w := bellOf(e.Subscription)
			w.listening, w.of = true, e.ID
		case Unlisten:
			bellOf(e.Subscription).listening = false
		case ListenForCalls:
			bellOf(e.Subscription).calls = true
		case UnlistenForCalls:
			bellOf(e.Subscription).calls = false
		case Verdict:
			for a, n := e.Request, e.Behind; ; a, n = a.Next(), n-1 {
				if x := a.Extra(); x != nil && x.Deadline != nil {
					x.Deadline = nil
					a.Handle.(party).giveUpAt(0)
				}
				if a.Handle.(party).OnResult(e.Hold, e.Err); n == 0 {
					break
				}
			}
		case ExtendResult:
			e.Extend.Handle.(interface{ OnResult() }).OnResult()
		case Ended:
			h := e.Hold.Handle.(*tenant)
			h.ended, h.why = h.ended+1, e.Loss
			h.notified = h.notified || h.IsAnnounced()
		case CloseDone:
			e.Hold.Handle.(*tenant).notified = true
		case Released:
			l.released = append(l.released, e.ID)
		case Lost, MessageRefused, ReleaseRefused, ReleaseDelayed, Unstalled, Removed:
		}
	}
	l.Applied()
}

// tell tells the callers of a transition.
func tell(rd *Ready) {
	for a, ok := rd.NextRequest(); ok; a, ok = rd.NextRequest() {
		a.Handle.(party).Deliver()
	}
	for u := rd.NextUnlock(); u != nil; u = rd.NextUnlock() {
		u.Handle.(interface{ Deliver() }).Deliver()
	}
}

// party is who asks for a lock.
type party interface {
	OnResult(h *Hold, why error)
	Deliver()
	giveUpAt(at clock.Instant)
}

func (h *tenant) renewal(when Renewal) {
	switch when {
	case RenewSoon:
		h.soon = true
	case RenewNoMore:
		h.renewed = false
	default:
		h.renewed = true
	}
}

// caller is who asks for a lock.
type caller struct {
	Request
	settled   int
	delivered int
	hold      *tenant
	err       error
	giveUp    clock.Instant
}

// once has c ask by TryLock, if so.
func (c *caller) once(once bool) {
	if once {
		c.Persists = UntilAnswered
	}
}

func (c *caller) OnResult(h *Hold, why error) {
	c.settled++
	if c.err = why; h != nil {
		c.hold = h.Handle.(*tenant)
	}
}
func (c *caller) Deliver() { c.delivered++ }
func (c *caller) giveUpAt(at clock.Instant) {
	if c.giveUp = at; at != 0 {
		c.More().Deadline = c
	}
}

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
	w.Handle = w
	return &w.Subscription
}

func bellOf(w *Subscription) *bell { return w.Handle.(*bell) }

// note is the timer of a compensation.
type note struct{ at clock.Instant }

func noteOf(d *Compensation) *note {
	if d.Handle == nil {
		d.Handle = new(note)
	}
	return d.Handle.(*note)
}

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
func (l *lab) ask(r *Entry, once bool) *caller { return l.admit(r, func(c *caller) { c.once(once) }) }

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
	l.settle()
	tell(&rd)
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

// What the channel of a subscription tells.

func (w *Subscription) Subscribed(rd *Ready)     { w.OnChannel(serial.Confirmed, rd) }
func (w *Subscription) OnMessage(rd *Ready)      { w.OnChannel(serial.Message, rd) }
func (w *Subscription) ConnectionLost(rd *Ready) { w.OnChannel(serial.Lost, rd) }
