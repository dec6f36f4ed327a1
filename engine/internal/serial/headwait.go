package serial

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// HeadWait is the wait of one name's head: when it tries at the server and when it
// sleeps. It is a plain state machine, without clock, socket or lock: the caller
// reports events under its own lock and does what the returned Action says.
//
// A wake-up must not be lost. If the head did not note what it misses, this could happen:
//
//	head                      holder            pub/sub connection
//	try executes: refused
//	                          releases, publishes
//	                                            message read: nobody sleeps yet
//	reads the refusal
//	sleeps, with the lock free
//
// So an event of the channel (a message, a confirmed subscription, a lost connection) while a try
// is out is noted, as missed, and a refusal puts the head to sleep only if nothing was
// missed. After a first refusal, with no subscription confirmed, the head cannot oversleep a
// message either: the confirmation is an event, too, and makes it try again.
//
//	       Sent                 Refused: missed something -> Try
//	idle ---------> trying ---------------------------------+
//	  ^               ^  | Refused: missed nothing -> Sleep  |
//	  | Granted       |  v                                   |
//	  +---------------+ asleep --- event or Alarm: Try ------+
//
// Skip leads from idle to a sleep that only the alarm ends. Linger leads to a rest without any waiter: the alarm
// ends the subscription, and a new waiter ends the rest.
//
// The state belongs to the name, not to the waiter: when a head leaves, the next
// one takes over the sleep and the subscription as they are, so nothing needs to
// be passed on.
type HeadWait struct {
	state     waitState
	listening bool // the subscription was asked for
	confirmed bool // ... and the server has confirmed it
	lost      bool // the connection was lost since it was last confirmed
	missed    bool // there was an event since the last try was sent
}

type waitState uint8

const (
	idle      waitState = iota // no try out, none refused: a try may be sent
	trying                     // a try is out
	asleep                     // the last try was refused; an event or the alarm ends it
	skipping                   // another's turn: the alarm ends it
	lingering                  // nobody waits: the alarm ends the subscription
)

// ChannelEvent is what happens to the channel of a name.
type ChannelEvent uint8

// The events. Each of them makes a head try that sleeps.
const (
	Confirmed ChannelEvent = iota // the server has confirmed the subscription
	Message                       // a message has come
	Lost                          // the connection was lost, and messages with it
)

// Action is what the caller does next.
type Action uint8

const (
	// Nothing is to be done.
	Nothing Action = iota
	// Try at the server at once.
	Try
	// TryPaced: try, but through the recovery queue, because many other names are told to
	// try at the same moment.
	TryPaced
	// Sleep: set the alarm to the returned duration.
	Sleep
)

const (
	// Poll bounds the sleep while no message can arrive: the channel is not
	// confirmed, or the key has no expiry that would end the sleep.
	Poll = time.Second
	// MovingPoll bounds it while the slot moves: sharded messages are then sent where nobody can be
	// subscribed.
	MovingPoll = 100 * time.Millisecond
	// LingerFor is how long a subscription outlives its last waiter, so that a name in demand does not
	// subscribe and unsubscribe at every turn.
	LingerFor = time.Second
	// YieldFor is how long a head skips its turn beside a round trip: the time in which others that
	// were woken find out. YieldMost bounds it: a release may have been repeated for long.
	YieldFor  = time.Millisecond
	YieldMost = 10 * time.Millisecond
)

// Listen reports whether the channel must be subscribed to now, and notes that
// it was. Heads of a lock that polls never call it.
func (w *HeadWait) Listen() bool {
	first := !w.listening
	w.listening = true
	return first
}

// Listening reports whether the subscription was asked for.
func (w *HeadWait) Listening() bool { return w.listening }

// Unlisten notes that the channel was given up. A sleep may have counted on its
// messages, so it is over: the next try may be sent.
func (w *HeadWait) Unlisten() {
	w.listening, w.confirmed, w.lost = false, false, false
	if w.state == asleep {
		w.state = idle
	}
}

// Hears reports whether the server has confirmed the subscription.
func (w *HeadWait) Hears() bool { return w.confirmed }

// Ready reports whether a try may be sent now.
func (w *HeadWait) Ready() bool { return w.state == idle }

// Sent notes that a try was sent.
func (w *HeadWait) Sent() {
	w.state = trying
	w.missed = false
}

// Reset ends a try or a sleep without a verdict: the next try may be sent. It is
// called after a grant, when a local hold ends, and when a try did not reach the
// server.
func (w *HeadWait) Reset() {
	if w.state != lingering {
		w.state = idle
	}
}

// Wake ends a sleep, and neither a try nor a turn that is skipped.
func (w *HeadWait) Wake() { w.wake(false) }

// Sleep notes that the head waits for something else than the server: an event or the alarm ends it.
func (w *HeadWait) Sleep() { w.state = asleep }

// Skip lets others go first: the next try is sent when the alarm rings, whatever the channel
// says before. It returns the instant of the alarm, after a command that was sent then and answered now.
func (w *HeadWait) Skip(sent, now clock.Instant) (alarm clock.Instant) {
	w.state = skipping
	return now.Add(min(now.Sub(sent)+YieldFor, YieldMost))
}

// Skips reports whether others go first.
func (w *HeadWait) Skips() bool { return w.state == skipping }

// Linger notes that nobody waits any more. It reports whether that is new: then the alarm is to ring
// after LingerFor, and to end the subscription.
func (w *HeadWait) Linger() (begins bool) {
	begins = w.state != lingering
	w.state = lingering
	return begins
}

// Lingers reports whether nobody waits.
func (w *HeadWait) Lingers() bool { return w.state == lingering }

// StopLingering notes that somebody waits again. It reports whether nobody did: then the alarm is off.
func (w *HeadWait) StopLingering() (ends bool) {
	if ends = w.state == lingering; ends {
		w.state = idle
	}
	return ends
}

// Refused notes that the try was refused. ttl is what the key has left, negative
// if it has no expiry.
func (w *HeadWait) Refused(ttl time.Duration) (Action, time.Duration) {
	if w.missed {
		w.state = idle
		return Try, 0
	}
	w.state = asleep
	if ttl < 0 || (!w.confirmed && ttl > Poll) {
		ttl = Poll
	}
	// The server rounds down to a millisecond. Without one more the try would come while
	// the key is still there.
	return Sleep, ttl + time.Millisecond
}

// Longest is how long a head that was refused sleeps at most: that long if messages arrive.
func (w *HeadWait) Longest(most time.Duration, moving bool) time.Duration {
	switch {
	case moving:
		return MovingPoll
	case !w.confirmed:
		return Poll
	}
	return most
}

// Heard notes an event of the channel, unless that was given up.
func (w *HeadWait) Heard(e ChannelEvent) Action {
	if !w.listening {
		return Nothing
	}
	// All names of a connection that was lost, or is there again, are told so together.
	paced := e == Lost || e == Confirmed && w.lost
	if e != Message {
		w.confirmed, w.lost = e == Confirmed, e == Lost
	}
	return w.Event(paced)
}

// Event notes any other event that makes the head try, paced if many names may have it together.
func (w *HeadWait) Event(paced bool) Action {
	w.missed = true
	return w.wake(paced)
}

// Asleep reports whether the head sleeps until an event or the alarm.
func (w *HeadWait) Asleep() bool { return w.state == asleep }

// Alarm notes that the sleep is over, or the turn that was skipped.
func (w *HeadWait) Alarm() Action {
	if w.state == skipping {
		w.state = asleep
	}
	return w.wake(false)
}

func (w *HeadWait) wake(paced bool) Action {
	if w.state != asleep {
		return Nothing // a try that is out has missed it
	}
	w.state = idle
	if paced {
		return TryPaced
	}
	return Try
}
