package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// Ready are what a transition leaves to be done once the shard's lock is released, after its Effects, in
// this order: ending contexts, sending the next command (which may take a lane's lock,
// write a socket, or complete at once) or handing the name to recovery, letting others go on,
// and telling callers their results. No user code runs under a lock.
//
// A transition that ends a hold with contexts sends nothing: the next command is chosen
// when the contexts have ended (see contexts.go).
//
// A Ready lives on the stack: its lists are linked through their own members, and
// nothing points back to it.
type Ready struct {
	// Ended are holds of one name with contexts, which must end before the name goes on:
	// see ContextsEnded. The others follow with NextEnded.
	Ended    *Hold
	Contexts int // how many they have together

	Send           *Entry // whose Cmd is to be sent
	Disconnected   *Entry // for the recovery queue
	AdvanceReaders *Entry // those behind it, and then it; see handover.go
	Err            error  // if not nil, they fail instead
	Wake           *Entry // its first waiter tries: a release was not announced; see Entry.Woken

	acquired waitq.Chain[*Request] // with their verdicts, in order
	unlocked *Unlock               // the same
}

// finish lists a request that has its verdict, and has it told.
func (rd *Ready) finish(a *Request, h *Hold, why error) {
	rd.list(a)
	e := a.res.Shard.emit(Verdict)
	e.Request, e.Hold, e.Err = a, h, why
}

func (rd *Ready) list(a *Request) {
	if a.state == delivered {
		panic("BUG: engine: acquisition finished twice")
	}
	a.state = delivered
	rd.acquired.Push(&a.place)
}

// NextRequest takes out the next request whose caller is to be told; ok if there is one.
func (rd *Ready) NextRequest() (a *Request, ok bool) { return rd.acquired.Pop() }

// NextUnlock is the same for an Unlock; nil if there is none.
func (rd *Ready) NextUnlock() *Unlock {
	u := rd.unlocked
	if u != nil {
		rd.unlocked = u.next
	}
	return u
}

// Unlock is one call of Unlock or UnlockAsync that waits for the release.
type Unlock struct {
	Handle any // the driver's
	Err    error
	state  callState
	next   *Unlock // of its hold, and then of a Ready
}

// callState is how far an Unlock or an Extend has come. It is guarded by the shard's lock.
type callState uint8

const (
	pending   callState = iota
	abandoned           // an Extend whose caller stopped waiting while the command was out
	settled             // Err is the verdict, and on its way
)

// Decided reports whether Err is the verdict. The shard's lock is held.
func (u *Unlock) Decided() bool { return u.state == settled }

// complete gives the verdict; the caller holds the shard's lock. From here on the
// waiting goroutine takes it and nothing else.
func (u *Unlock) complete(err error, rd *Ready) {
	u.Err, u.state = err, settled
	u.next, rd.unlocked = rd.unlocked, u
}

// Extend is one Extend under way. Those of a hold are sent one after the other.
type Extend struct {
	Handle any // the driver's
	Lease  time.Duration
	Err    error
	state  callState
	next   *Extend // of its hold
}

// finishExtend gives the result to the caller.
func (h *Hold) finishExtend(x *Extend, err error) {
	x.Err, x.state = err, settled
	h.Entry.Shard.emit(ExtendResult).Extend = x
}
