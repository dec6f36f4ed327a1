package serial

import "time"

// Blocked says why nothing of a name may be sent. Whatever blocks a name unblocks it: recovery, which lists it, or the
// timer of its pause. Nobody else does, or either would still point to the name when that is
// another's:
//
//	head                  TryLock               the name
//	asleep                out                   free
//	its channel is lost                         Disconnected: listed by recovery
//	                      refused: BUSY         must stay so
type Blocked uint8

// The reasons.
const (
	NotBlocked   Blocked = iota
	Disconnected         // no connection: recovery unblocks it
	BackingOff           // the server refuses for now: the end of the pause unblocks it
	OtherReasons         // from here on: those of a package
)

// Block reports false, and does nothing, if the name is blocked already: then that unblocks it, and a refusal
// meets the next command.
func (b *Blocked) Block(why Blocked) bool {
	if *b != NotBlocked {
		return false
	}
	*b = why
	return true
}

// Unblock reports whether the name was blocked for that reason.
func (b *Blocked) Unblock(why Blocked) bool {
	if *b != why {
		return false
	}
	*b = NotBlocked
	return true
}

// Refusals is how often the server has refused a name's commands in a row.
type Refusals uint8

// Pause counts one more, and returns how long nothing is sent after it: longer each time; not so if the slot
// moves, which ends by itself, with messages to nobody meanwhile.
func (n *Refusals) Pause(moving bool, r Random) time.Duration {
	*n = min(*n+1, 6)
	d := 10 * time.Millisecond << *n // 20 ms ... 640 ms
	if moving {
		d = min(d, MovingPoll)
	}
	return Spread(d, r)
}

// Random returns a random part of d.
type Random interface {
	Draw(d time.Duration) time.Duration
}

// Spread is between half of d and d, so that those who fell asleep together do not wake together.
func Spread(d time.Duration, r Random) time.Duration { return d/2 + r.Draw(d/2) }
