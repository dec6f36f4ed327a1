package engine

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
)

// A resource is the local state of one lock name: its hold and its waiters in this
// process, and the one command of the name that may be on the wire.
//
// Invariants, under the shard's lock:
//
//  1. At most one command of the name is in flight (cmd). The next one is chosen
//     by next from the state at that time; there is no queue of commands. So
//     nothing of a name can be overtaken by a command that had to be sent again,
//     and a compensation is written only after the reply of what it compensates,
//     or after the death of its connection.
//  2. hold is the outermost hold of this process, from its grant until its release
//     is settled; while it is there no acquisition of the name is sent, except
//     re-entries under it.
//  3. Only the front of waiters tries at the server; entries of tries try once each. While
//     both want to, they take turns.
//  4. Once the head was refused, and whenever somebody waits behind a hold of this
//     process, whichever came first, the channel is subscribed to (wait), until a
//     moment after the last waiter left.
//  5. The resource is in the table as long as any of these is there: hold,
//     waiters, tries, debts, wait, a command in flight, a hold that is being told.
//  6. While contexts of a hold that ended are alive, nothing is sent (telling).
//
// Renewals are not commands of the name: they go in batches over a connection of
// their own, and any order of them and the commands here is harmless.
type resource struct {
	sh    *shard // never changes, even if the resource is reused for another name
	name  string // as it stands on the server
	route uint64

	hold    *holding
	waiters queue.List[*acquisition]  // Lock, first come first served
	tries   *queue.List[*acquisition] // TryLock; nil until the first
	debts   *debt                     // owners to be released; see debt.go
	wait    *waiting                  // nil until a first refusal
	cmd     command

	kind    kind.Kind
	held    holdback // why nothing may be sent now
	refused uint8    // refusals in a row, for the pause between tries
	spent   bool     // recovery or a timer points to it still: not for use again
	// headsTurn: the latest acquire was that of a TryLock. So TryLocks that come again and
	// again do not keep the head from trying.
	headsTurn bool
	dropped   bool   // recovery need not go on with it; guarded by recovery.mu
	tried     tried  // what the latest command was told
	telling   uint32 // holds that ended and whose contexts have not: see telling.go

	nextFree *resource
}

// holdback says why no command of the name may be sent.
type holdback uint8

const (
	freely  holdback = iota
	stalled          // no connection: the recovery queue goes on with it
	paused           // the server refuses for now: the pause timer goes on with it
)

// holdBack keeps the name from sending, unless something does so already: then that
// goes on with it, and a refusal meets the next command.
func (r *resource) holdBack(why holdback) bool {
	if r.held != freely {
		return false
	}
	r.held = why
	return true
}

// letGo is called by what holds the name back: recovery, which lists it, or the timer of
// its pause. Nobody else ends that, or either would still point to the resource when it
// serves another name:
//
//	head                  TryLock               the name
//	asleep                out                   freely
//	its channel is lost                         stalled: listed by recovery
//	                      refused: BUSY         must stay so
func (r *resource) letGo(why holdback) bool {
	if r.held != why {
		return false
	}
	r.held = freely
	return true
}

// setFree lets a name go that has nothing to send any more. What held it back points to
// the resource still, so it never serves another name.
func (r *resource) setFree() {
	if r.held != freely {
		r.held, r.spent = freely, true
	}
}

// next chooses the command that is to be sent now, if any, and notes it in cmd.
// Debts come first: what this process may still hold unknowingly stands in
// everybody's way. The caller passes r to effects.send.
func (r *resource) next(fx *effects) {
	if r.cmd.what != nothing || r.held != freely || r.telling != 0 {
		return
	}
	if r.settleDebt() || r.serveHold(fx) || r.headsTurn && r.serveHead() || r.serveTry(fx) || r.serveHead() {
		fx.send = r
	}
}

// serveHold chooses among what the live or ending hold needs.
func (r *resource) serveHold(fx *effects) bool {
	h := r.hold
	if h == nil {
		return false
	}
	if h.state == releasing {
		// A hand-over to the first local waiter, without a command, plugs in here.
		r.sendRelease(h)
		return true
	}
	for ; h != nil; h = h.child {
		if h.state == releasing {
			r.sendLeave(h)
			return true
		}
		if h.extra != nil && h.extra.extend != nil {
			r.sendExtend(h)
			return true
		}
		for h.reentered() && h.pending() {
			a, _ := h.extra.children.Front()
			if !a.once {
				break
			}
			a.refuseLocal(h, fx) // it waited for the answer to another TryLock
		}
		if h.child == nil && h.extra != nil {
			if a, ok := h.extra.children.Front(); ok {
				r.sendReenter(a)
				return true
			}
		}
	}
	return false
}

// serveTry lets the first TryLock make its attempt, or refuses it if this process
// holds the lock.
func (r *resource) serveTry(fx *effects) bool {
	for {
		a, ok := r.tries.Front()
		if !ok {
			return false
		}
		if r.hold == nil {
			r.sendAcquire(a, false)
			return true
		}
		if r.hold.state == releasing {
			return false
		}
		a.refuseLocal(r.hold, fx)
	}
}

// serveHead lets the first waiter try, unless it sleeps.
func (r *resource) serveHead() bool {
	if r.hold != nil || (r.wait != nil && !r.wait.Ready()) {
		return false
	}
	a, ok := r.waiters.Front()
	if !ok {
		return false
	}
	if r.wait != nil {
		r.wait.Sent()
	}
	r.sendAcquire(a, true)
	return true
}

// pause holds the name's commands back for a moment after the server refused one,
// longer each time; not so if its slot is being migrated, which ends by itself, with
// messages to nobody meanwhile.
func (r *resource) pause(now clock.Instant, moving bool) {
	if !r.holdBack(paused) {
		return
	}
	r.refused = min(r.refused+1, 6)
	d := 10 * time.Millisecond << r.refused // 20 ms ... 640 ms
	if moving {
		d = min(d, movingPoll)
	}
	d = d/2 + r.sh.eng.world.Draw(d/2)
	p := &pauseTimer{res: r, sh: r.sh}
	p.timer.Init(p)
	r.sh.eng.wheel.Schedule(&p.timer, now.Add(d))
}

// owner is this engine's owner with the given number.
func (r *resource) owner(id int64) script.Owner {
	return script.Owner{Engine: r.sh.eng.id, ID: id}
}

// channel is where the end of this lock is announced.
func (r *resource) channel() script.Channel {
	return r.kind.Channel(r.name, r.sh.eng.verb())
}

// verb is how a release is announced. Sharded messages and plain ones are strangers.
func (e *Engine) verb() string {
	switch {
	case !e.client.Sharded():
		return "PUBLISH"
	case e.cfg.Sharding == "both":
		return "BOTH"
	default:
		return "SPUBLISH"
	}
}

// settled subscribes if somebody waits behind a hold, and lets go of what the resource
// does not need any more: the subscription, if nobody waits, and the resource itself, if
// nothing is left. It is the last thing a transition does.
func (r *resource) settled() {
	switch waiting := r.waiters.Len() > 0; {
	case waiting && r.hold != nil:
		// A waiter here asks no server: without the channel, or a look now and then, a
		// removal by force would go unnoticed until the hold's time is over.
		w := r.ensureWait()
		w.listen()
		w.lookUnasked()
	case !waiting && r.wait != nil && !r.cmd.head:
		r.linger()
	}
	if r.hold != nil || r.waiters.Len() > 0 || r.tries.Len() > 0 || r.debts != nil ||
		r.cmd.what != nothing || r.held == paused || r.telling != 0 {
		return
	}
	r.tried = untried // the next acquisition must find out by itself
	if r.wait != nil {
		return
	}
	if !r.known() {
		return // out already
	}
	if r.held == stalled { // an outage may last, and names be used once
		r.setFree()
		r.sh.eng.recovery.drop(r)
	}
	delete(r.sh.resources[r.kind], r.name)
	r.sh.eng.emptied(r.sh)
	r.recycle()
}

// known reports whether the resource is the one of its name; one that was recycled
// is nobody's, or another name's.
func (r *resource) known() bool { return r.sh.resources[r.kind][r.name] == r }

// maxFree bounds the resources that a shard keeps for use again.
const maxFree = 64

// recycle keeps the resource for the next name. Nothing points to it any more:
// users hold holdings and acquisitions, and those that ended do not look at it;
// its command has been answered; it has no timer, for the pauses and the waits are
// objects of their own.
func (r *resource) recycle() {
	if r.spent {
		return
	}
	r.name, r.route, r.refused, r.headsTurn = "", 0, 0, false
	if r.sh.freeCount >= maxFree {
		return
	}
	r.nextFree, r.sh.free = r.sh.free, r
	r.sh.freeCount++
}
