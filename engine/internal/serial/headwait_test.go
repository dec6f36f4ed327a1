package serial

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// event is what can happen to a HeadWait.
type event uint8

const (
	sent event = iota
	refusedNow
	refusedSoon
	refusedLate
	refusedForEver // the key has no expiry
	confirmed
	message
	disconnected
	alarm
	reset
	listen
	unlisten
	linger
	stopLingering
	events
)

var eventNames = [...]string{"Sent", "Refused(0)", "Refused(50ms)", "Refused(1h)", "Refused(-1)", "Confirmed", "Message",
	"Disconnected", "Alarm", "Reset", "Listen", "Unlisten", "Linger", "StopLingering"}

func (e event) String() string { return eventNames[e] }

var ttls = map[event]time.Duration{refusedNow: 0, refusedSoon: 50 * time.Millisecond, refusedLate: time.Hour, refusedForEver: -time.Millisecond}

// observer remembers what a bystander sees, and says what must come of an event.
type observer struct {
	out       bool // a try is out
	missed    bool // something came after it was sent
	asleep    bool
	listening bool
	heard     bool // messages arrive
	lost      bool // they did, until the connection was lost
	lingers   bool // nobody waits
}

// possible reports whether the caller can report this event now.
func (o *observer) possible(e event) bool {
	switch e {
	case sent:
		return !o.out && !o.asleep && !o.lingers
	case refusedNow, refusedSoon, refusedLate, refusedForEver:
		return o.out
	case confirmed, message, disconnected, unlisten:
		return o.listening
	case linger:
		return !o.out
	}
	return true
}

// expectation is what an event must lead to.
type expectation struct {
	action   Action
	min, max time.Duration // of the sleep
}

func (o *observer) observe(e event) expectation {
	wake := expectation{action: Nothing}
	if o.asleep {
		wake.action = Try
	}
	switch e {
	case sent:
		o.out, o.missed = true, false
	case refusedNow, refusedSoon, refusedLate, refusedForEver:
		o.out = false
		if o.missed {
			return expectation{action: Try}
		}
		o.asleep = true
		ttl := ttls[e]
		if ttl < 0 || !o.heard && ttl > Poll {
			ttl = Poll
		}
		// The server cuts what is left to a whole millisecond: one more, or the try
		// would come while the key is there; no more, or the lock is free and nobody
		// tries.
		return expectation{Sleep, ttl + time.Millisecond, ttl + time.Millisecond}
	case confirmed:
		if o.lost && o.asleep {
			wake.action = TryPaced
		}
		o.heard, o.lost = true, false
		o.happened()
		return wake
	case message:
		o.happened()
		return wake
	case disconnected:
		if o.asleep {
			wake.action = TryPaced
		}
		o.heard, o.lost = false, true
		o.happened()
		return wake
	case alarm:
		o.asleep = false
		return wake
	case reset:
		o.out, o.asleep = false, false
	case linger:
		o.lingers, o.asleep = true, false
	case stopLingering:
		o.lingers = false
	case listen:
		o.listening = true
	case unlisten:
		// A sleep that counted on messages must not go on.
		o.listening, o.heard, o.lost, o.asleep = false, false, false, false
	}
	return expectation{action: Nothing}
}

func (o *observer) happened() { o.asleep, o.missed = false, true }

// apply reports an event to the HeadWait.
func apply(w *HeadWait, e event) (Action, time.Duration, bool) {
	switch e {
	case sent:
		w.Sent()
	case refusedNow, refusedSoon, refusedLate, refusedForEver:
		a, d := w.Refused(ttls[e])
		return a, d, true
	case confirmed:
		return w.Heard(Confirmed), 0, true
	case message:
		return w.Heard(Message), 0, true
	case disconnected:
		return w.Heard(Lost), 0, true
	case alarm:
		return w.Alarm(), 0, true
	case reset:
		w.Reset()
	case listen:
		w.Listen()
	case unlisten:
		w.Unlisten()
	case linger:
		w.Linger()
	case stopLingering:
		w.StopLingering()
	}
	return Nothing, 0, false
}

// TestHeadNeverSleepsPastAnEventInAnyInterleaving tries every sequence of events up
// to a length. A head that was refused must try again if anything came after its try
// was sent, must not sleep longer than Poll while no message can reach it, and any
// event ends its sleep.
func TestHeadNeverSleepsPastAnEventInAnyInterleaving(t *testing.T) {
	t.Parallel()
	depth := 8
	if testing.Short() {
		depth = 7
	}
	var path []event
	sequences, sleeps := 0, 0
	var explore func(w HeadWait, o observer)
	explore = func(w HeadWait, o observer) {
		if len(path) == depth {
			sequences++
			return
		}
		for e := range events {
			if !o.possible(e) {
				continue
			}
			w, o := w, o
			path = append(path, e)
			want := o.observe(e)
			action, d, acts := apply(&w, e)
			if action == Sleep {
				sleeps++
			}
			switch {
			case acts && action != want.action,
				action == Sleep && (d < want.min || d > want.max),
				w.Ready() != (!o.out && !o.asleep && !o.lingers),
				w.Lingers() != o.lingers,
				w.Listening() != o.listening:
				t.Fatalf("after %v: action %d for %v, ready %v, listening %v; want %+v, observer %+v", path, action, d, w.Ready(), w.Listening(), want, o)
			}
			explore(w, o)
			path = path[:len(path)-1]
		}
	}
	explore(HeadWait{}, observer{})
	t.Logf("%d sequences of %d events, %d sleeps", sequences, depth, sleeps)
	if sequences < 100_000 || sleeps < 10_000 {
		t.Error("that is not an exhaustive search")
	}
}

// TestListenAsksForOneSubscription: only the first call says that it is wanted.
func TestListenAsksForOneSubscription(t *testing.T) {
	t.Parallel()
	var w HeadWait
	for i, want := range []bool{true, false, false} {
		if got := w.Listen(); got != want {
			t.Errorf("call %d: %v", i, got)
		}
	}
	w.Unlisten()
	if !w.Listen() {
		t.Error("after Unlisten the subscription is not asked for again")
	}
}

// The sequence that loses a wake-up if nothing is noted while a try is out, spelled out.
func ExampleHeadWait() {
	var w HeadWait
	w.Listen()
	w.Heard(Confirmed)
	w.Sent()                          // the try executes at the server: refused
	w.Heard(Message)                  // the holder released; this overtakes the refusal
	action, _ := w.Refused(time.Hour) // nobody would ever wake us
	fmt.Println(action == Try, w.Ready())
	// Output: true true
}

// A head that lets others go first is not woken by the message that tells them to.
func TestOnlyTheAlarmEndsATurnThatIsSkipped(t *testing.T) {
	t.Parallel()
	var w HeadWait
	w.Listen()
	w.Heard(Confirmed)
	w.Skip(0, 0)
	for what, event := range map[string]ChannelEvent{"a message": Message, "a lost connection": Lost, "a confirmation": Confirmed} {
		if action := w.Heard(event); action != Nothing || w.Ready() {
			t.Errorf("%s: action %d", what, action)
		}
	}
	if action := w.Alarm(); action != Try || !w.Ready() {
		t.Errorf("the alarm: action %d", action)
	}
}

// What nobody waits for wakes nobody, and is not taken for a try; the first who waits again tries.
func TestHeadWait_NobodyWaits_Lingers(t *testing.T) {
	t.Parallel()
	var w HeadWait
	w.Listen()
	w.Skip(0, 0)
	if !w.Linger() || w.Linger() || w.Skips() {
		t.Error("it begins once, and ends a turn that is skipped")
	}
	w.Reset()
	if action := w.Heard(Message); action != Nothing || w.Ready() || !w.Lingers() {
		t.Errorf("action %d, ready %v", action, w.Ready())
	}
	if !w.StopLingering() || w.StopLingering() || !w.Ready() {
		t.Error("it ends once, and the next try may be sent")
	}
}

// Whatever woke it, a head that lets others go first does so for a round trip and a moment.
func TestHeadWait_Skip_LastsARoundTripAndAMoment(t *testing.T) {
	t.Parallel()
	const now = clock.Instant(time.Hour)
	for trip, want := range map[time.Duration]time.Duration{0: YieldFor, 3 * time.Millisecond: 3*time.Millisecond + YieldFor, time.Minute: YieldMost} {
		var w HeadWait
		if at := w.Skip(now.Add(-trip), now); at != now.Add(want) || !w.Skips() {
			t.Errorf("after a round trip of %v: %v, want %v", trip, at.Sub(now), want)
		}
		if w.Wake(); !w.Skips() {
			t.Error("another event ends it")
		}
	}
}
