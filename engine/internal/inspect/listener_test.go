package inspect

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// desk is the world of a Listener: it counts what that does.
type desk struct {
	env.Client
	*clock.Fake
	l            *Listener
	subscribed   int
	unsubscribed int
	published    []string // channels
	at           clock.Instant
	names        int
	sofar        uint64
	refusals     int
	late         []func() // what is to run on a goroutine
	answering    func(late func() bool)
}

func newDesk() *desk {
	d := &desk{Fake: clock.NewFake()}
	d.l = NewListener(Config{
		Client: d, Timers: deskTimers{of: d}, Clock: d.Fake, Verb: func() string { return "PUBLISH" }, Spawn: func(f func()) { d.late = append(d.late, f) },
		Busy: func() (bool, uint64) { return d.names > 0, d.sofar },
		Answer: func(_ *Question, late func() bool) *Answer {
			if d.answering != nil {
				d.answering(late)
			}
			return &Answer{Engine: "e"}
		},
		Refused: func(error) { d.refusals++ },
	})
	return d
}

func (d *desk) Subscribe(*resp.Channel)   { d.subscribed++ }
func (d *desk) Unsubscribe(*resp.Channel) { d.unsubscribed++ }
func (d *desk) Route(string) uint64       { return 0 }
func (d *desk) Submit(_ uint64, r resp.Request) {
	d.published = append(d.published, r.(*publication).channel)
}

// deskTimers has the one timer.
type deskTimers struct {
	env.Timers
	of *desk
}

func (t deskTimers) Schedule(_ *wheel.Timer, at clock.Instant) { t.of.at = at }
func (t deskTimers) Cancel(*wheel.Timer) bool                  { t.of.at = 0; return true }

// use is an acquisition, after which so many names are there.
func (d *desk) use(names int) {
	d.names, d.sofar = names, d.sofar+1
	d.l.Used()
}

// look lets the timer fire, if it is set.
func (d *desk) look() {
	if at := d.at; at != 0 {
		d.at = 0
		d.Advance(at.Sub(d.Now()))
		d.l.Fire(nil, at)
	}
}

// run runs what was spawned.
func (d *desk) run() {
	for len(d.late) > 0 {
		f := d.late[0]
		d.late = d.late[1:]
		f()
	}
}

func (d *desk) want(t *testing.T, when string, subscribed, unsubscribed int, timer bool) {
	t.Helper()
	if d.subscribed != subscribed || d.unsubscribed != unsubscribed || (d.at != 0) != timer {
		t.Errorf("%s: subscribed %d, unsubscribed %d, timer %t", when, d.subscribed, d.unsubscribed, d.at != 0)
	}
}

func TestListener_Names_AreListenedForWhileTheyLast(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.want(t, "at first", 0, 0, false)
	d.use(1)
	d.want(t, "a name", 0, 0, true)
	d.names = 0
	d.look()
	d.want(t, "it was short", 0, 0, false)
	d.use(1)
	d.look()
	d.want(t, "it lasts", 1, 0, true)
	d.look()
	d.want(t, "it lasts still", 1, 0, true)
	d.use(0)
	d.look()
	d.want(t, "there was one since", 1, 0, true)
	d.look()
	d.want(t, "there was none since", 1, 1, false)
	d.use(1)
	d.look()
	d.want(t, "a new one", 2, 1, true)
	d.l.Close()
	d.want(t, "closed", 2, 1, false)
}

func TestListener_Refused_IsOffForGood(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.use(1)
	d.look()
	d.l.ChannelEvent(resp.Refused, nil, errors.New("NOPERM"))
	d.look()
	d.use(2)
	d.look()
	d.l.ChannelEvent(resp.Refused, nil, errors.New("NOPERM"))
	if d.want(t, "refused", 1, 0, false); d.refusals != 1 || d.l.Listening() {
		t.Errorf("%d refusals", d.refusals)
	}
}

func TestListener_Questions_AreAnsweredOnceInTime(t *testing.T) {
	t.Parallel()
	d := newDesk()
	ask := func(channel string) {
		d.l.ChannelEvent(resp.Message, (&Question{ID: "1", Reply: channel, About: AboutWaits, Millis: 200}).Encode(), nil)
	}
	ask(replyPrefix + "1")
	ask("redisson_lock__channel:{orders}") // a message there would wake waiters
	d.l.ChannelEvent(resp.Message, []byte("{"), nil)
	if d.run(); len(d.published) != 1 || d.published[0] != replyPrefix+"1" {
		t.Errorf("published to %q", d.published)
	}
	ask(replyPrefix + "late")
	d.Advance(201 * time.Millisecond) // this process was paused
	if d.run(); len(d.published) != 1 {
		t.Errorf("published to %q", d.published)
	}
}

func TestListener_TooManyQuestions_AreDropped(t *testing.T) {
	t.Parallel()
	d := newDesk()
	ask := func() {
		d.l.ChannelEvent(resp.Message, (&Question{ID: "1", Reply: replyPrefix + "1", About: AboutWaits, Millis: 2000}).Encode(), nil)
	}
	for range 1000 { // nobody runs meanwhile
		ask()
	}
	if d.run(); len(d.published) != maxQueued || len(d.late) != 0 {
		t.Errorf("%d answers", len(d.published))
	}
	d.published = nil
	d.Advance(time.Second)
	for range 1000 {
		ask()
		d.run()
	}
	if len(d.published) != maxRate {
		t.Errorf("%d answers in a second", len(d.published))
	}
	d.l.Close()
	d.Advance(time.Second)
	ask()
	if d.run(); len(d.published) != maxRate {
		t.Error("it answers after Close")
	}
}

func TestListener_AnswerTakesLong_IsGivenUp(t *testing.T) {
	t.Parallel()
	for what, happens := range map[string]func(d *desk){
		"its time is over":     func(d *desk) { d.Advance(Patience + 1) },
		"the engine is closed": func(d *desk) { d.l.Close() },
	} {
		d := newDesk()
		d.answering = func(late func() bool) {
			if late() {
				t.Errorf("%s: late at once", what)
			}
			if happens(d); !late() {
				t.Errorf("%s: not late", what)
			}
		}
		d.l.ChannelEvent(resp.Message, (&Question{ID: "1", Reply: replyPrefix + "1", About: AboutWaits, Millis: 60_000}).Encode(), nil)
		if d.run(); len(d.published) != 0 {
			t.Errorf("%s: published to %q", what, d.published)
		}
	}
}
