package engine

import (
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
)

// A resource is the local state of one lock name: who holds it in this process,
// who waits for it, and the one command of it that may be on the wire.
//
// Invariants, under the shard's lock:
//
//  1. At most one command of the name is in flight (cmd). The next one is chosen
//     by next from the state as it is then; there is no queue of commands. So
//     nothing of a name can be overtaken by a command that had to be sent again,
//     and a compensation is written only after the reply of what it compensates,
//     or after the death of its connection.
//  2. hold is the outermost hold of this process, from its grant until its release
//     is settled; while it is there no acquisition of the name is sent, except
//     re-entries under it.
//  3. Only the front of waiters tries at the server; entries of tries try once each.
//  4. Once the head was refused, or waits for a hold of this process, the channel is
//     subscribed to (wait), until a moment after the last waiter left.
//  5. The resource is in the table as long as any of these is there: hold,
//     waiters, tries, debts, wait, a command in flight.
//
// Renewals are not commands of the name: they go in batches over a connection of
// their own, and any order of them and the commands here is harmless.
type resource struct {
	sh    *shard // for good, also when the resource serves another name
	name  string // as it stands on the server
	route uint64

	hold    *holding
	waiters queue.List[*acquisition]  // Lock, first come first served
	tries   *queue.List[*acquisition] // TryLock; nil until the first
	debts   *debt                     // owners to be released; see debt.go
	wait    *waiting                  // nil until a first refusal
	cmd     command

	kind    kind
	held    holdback // why nothing may be sent now
	refused uint8    // refusals in a row, for the pause between tries
	spent   bool     // recovery points to it still: not for use again

	nextFree *resource
}

// holdback says why no command of the name may be sent.
type holdback uint8

const (
	freely  holdback = iota
	stalled          // no connection: the recovery queue goes on with it
	paused           // the server refuses for now: the pause timer goes on with it
)

// next chooses the command that is to be sent now, if any, and notes it in cmd.
// Debts come first: what this process may still hold unknowingly stands in
// everybody's way. The caller passes r to effects.send.
func (r *resource) next(fx *effects) {
	if r.cmd.what != nothing || r.held != freely {
		return
	}
	if r.settleDebt() || r.serveHold(fx) || r.serveTry(fx) || r.serveHead() {
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
	r.refused = min(r.refused+1, 6)
	d := 10 * time.Millisecond << r.refused // 20 ms ... 640 ms
	if moving {
		d = min(d, movingPoll)
	}
	d = d/2 + rand.N(d/2)
	r.held = paused
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
	prefix := channelPrefix[r.kind]
	if prefix == "" {
		return script.Channel{}
	}
	return script.Channel{Prefix: prefix, Lock: r.name, Verb: r.sh.eng.verb()}
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

// settled lets go of what the resource does not need any more: the subscription, if
// nobody waits, and the resource itself, if nothing is left. It is the last thing a
// transition does.
func (r *resource) settled() {
	if r.wait != nil && r.waiters.Len() == 0 && !r.cmd.head {
		r.linger()
	}
	if r.hold != nil || r.waiters.Len() > 0 || r.tries.Len() > 0 || r.debts != nil ||
		r.wait != nil || r.cmd.what != nothing || r.held != freely {
		return
	}
	if !r.known() {
		return // out already
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
	r.name, r.route, r.refused = "", 0, 0
	if r.sh.freeCount >= maxFree {
		return
	}
	r.nextFree, r.sh.free = r.sh.free, r
	r.sh.freeCount++
}
