package lock

import (
	"math"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// A hold that is unlocked while others of this process wait is handed over: the first of them
// gets the grant as it is, and no command is sent. On the server nothing changes: the owner
// stays, and the watchdog renews it as before.
//
// That alone would keep other processes out for good. So a grant is handed over so many times
// and so long at most (HandOvers, HandOverFor), and then released. An engine's 10 ms have most
// of the gain, for a wait that others hardly notice; its ten thousand times take about as long
// at full speed (docs/benchmarks.md has the figures). The head of this process then skips a
// turn: it hears of the release first, and its try would mostly come first, too.
//
//	this process             the server             another process
//	release  ------------->  released
//	                         message  ----------->  wakes
//	the answer: skips a turn <--------------------  acquire
//	                         granted  ----------->
//	acquire  ------------->  refused, waits for a message

// successor is who the grant of h may be handed over to, nil if it is to be released: there
// is nobody, it is another's turn, or the next one wants something else than h had.
func (r *Entry) successor(h *Hold) *Request {
	a := r.First()
	// A release is announced as the grant's kind does.
	if a == nil || !a.plain() || a.Acks != h.Acks || a.Kind != h.Kind || !r.handsOver(h) {
		return nil
	}
	return a
}

// handsOver reports whether the grant of h may be handed over, to one who wants nothing else
// than h had.
func (r *Entry) handsOver(h *Hold) bool {
	cfg, w := r.Shard.Config, r.sub
	switch {
	case h.handOvers >= cfg.HandOvers || r.Shard.closing() || !h.plain():
		return false
	case h.grantsOne() && !r.Shard.Traits[h.Kind].Batches || r.Shard.anyBehind(r):
		return false
	case w == nil:
		return false
	}
	now := r.Shard.Stamp()
	left := h.ValidUntil().Sub(now)
	if left < cfg.Lease/2 {
		return false // it was not renewed
	}
	if h.handOvers == 0 { // nobody may have waited at the grant; or that was long ago
		began := h.ValidUntil().Add(cfg.Margin(cfg.Lease) - cfg.Lease)
		w.turnLasts(began.Add(cfg.HandOverFor))
	}
	return !w.turnEnds.before(milliseconds(now))
}

// beginTurn notes when the turn of a grant ends that this process has heard of just now: the
// answer may have taken longer than a turn.
func (r *Entry) beginTurn(now clock.Instant) {
	if r.sub != nil || r.waiters.Len() > 0 {
		r.ensureSubscription().turnEnds = milliseconds(now.Add(r.Shard.Config.HandOverFor))
	}
}

// turnLasts has the turn end then, if not later.
func (w *Subscription) turnLasts(until clock.Instant) {
	if at := milliseconds(until); w.turnEnds.before(at) {
		w.turnEnds = at
	}
}

// plain reports whether the hold leaves its grant as a grant of now would be: renewed by the
// watchdog, with a count of one, and nothing to come.
func (h *Hold) plain() bool {
	if !h.watchdog || h.mustRelease || h.releaseInDoubt || h.counted > 1 {
		return false
	}
	x := h.extra
	return x == nil || x.maxEnd == 0 && x.minEnd == 0 && !x.ofQuorum
}

// plain reports whether such a grant is all that the request asks for.
func (a *Request) plain() bool {
	if a.Lease != 0 {
		return false
	}
	x := a.extra
	return x == nil || x.MaxHold == 0 && x.MinHold == 0 && !x.Quorum
}

// lengthens notes that a command gives the grant a lease: that of a re-entry, say. No renewal
// shortens one that is longer than the watchdog's, and the next one has not asked for it: if
// this process died, nobody would get the lock for that long.
func (r *Entry) lengthens(lease time.Duration) {
	if lease > r.Shard.Config.Lease {
		r.hold.mustRelease = true
	}
}

// handOver ends the release of h, and gives its grant to a.
func (r *Entry) handOver(h *Hold, a *Request, rd *Ready) {
	next := h.another(a, h.OwnUntil()) // the end of h
	r.hold = next
	r.Shard.Count.Released++
	h.completeUnlocks(nil, rd)
	a.grant(next, rd)
}

// another makes another hold of the grant of h, for a.
func (h *Hold) another(a *Request, since clock.Instant) *Hold {
	next := a.Handle.NewHold(h.Entry, h)
	next.Name, next.count, next.since = a.Name(), 1, milliseconds(since)
	if a.extra != nil {
		a.extra.Granted = since
	}
	next.setUntil(math.MaxInt64)
	next.handOvers = max(next.handOvers, next.handOvers+1) // of readers it may be any number
	n := &h.Entry.Shard.Count
	n.HandedOver++
	n.Held++
	return next
}

// yield has the head skip a turn after the release of a grant that was handed over.
func (r *Entry) yield(o *Outcome) {
	if w := r.sub; w != nil && r.waiters.Len() > 0 {
		w.setTimer(w.Skip(o.Sent, o.Now))
	}
}

// A grant that is more than its owner is not handed over as it is: one with a fencing token
// counts one grant, and one that replicas have acknowledged was acknowledged for one holder. It
// is released, and the acquire of the next one goes in the same command, so the lock is never free
// in between, and that costs one round trip instead of two. The same bounds hold as for a grant
// that is handed over.

// Readers of a name are apart from its writers, and some from each other (see readers.go). Its
// writers share an Entry. So that readers that come and go
// do not keep the writers of their own process out for ever, nor writers the readers, they take
// turns, as with sync.RWMutex:
//
//   - A reader that comes while a writer has the name, or waits for it, stays BehindWriter. It
//     asks no server. A TryLock does not wait, so it does not stay behind either; nor does a
//     reader that reads beside the writer.
//   - A reader that goes on may find that another process has the lock. If a writer of its own
//     process gets it after that one, the reader is BehindWriter again once it has been refused: that
//     writer's successors would take the lock sooner than the reader could hear of a release.
//   - When a writer's hold has ended, all readers that are BehindWriter go on, and only then the
//     next writer. So a grant is not handed over while a reader is BehindWriter.
//   - When the last writer that waits gives up, they go on, too.
//
// The first commands of readers that go on are sent before that of the next writer:
//
//	a writer's name              the readers                the server
//	the release is answered
//	Yielding           ------->  freely: acquire  ------->  granted
//	freely: acquire    -------------------------------->   refused, until the last of them leaves
//
// Nothing of this is known to other processes.

// ahead is the Entry of the writers that a new request of r may have to stay behind; nil if
// there is none.
func (r *Entry) ahead(a *Request) *Entry {
	if r.member == 0 || a.writer() != nil {
		return nil
	}
	return r.Shard.ahead(r)
}

// behind is ahead, if somebody writes or wants to.
func (r *Entry) behind(a *Request) *Entry {
	if w := r.ahead(a); w != nil && (w.hold != nil || w.First() != nil) {
		return w
	}
	return nil
}

// overtaken is the Entry of the writers if the first that waits for r was refused because one
// of them has the name by now; else nil.
func (r *Entry) overtaken() *Entry {
	a := r.First()
	if a == nil || r.blocked != NotBlocked {
		return nil
	}
	if w := r.ahead(a); w != nil && w.hold != nil {
		return w
	}
	return nil
}

// waitBehindWriter has r ask no server until it is its turn. The writers must hear of a removal, for
// nobody else here does.
func (r *Entry) waitBehindWriter(w *Entry) {
	r.blocked = BehindWriter
	if own := r.sub; own != nil {
		own.setTimer(0)
		own.end()
	}
	w.sub.stopLingering()
	w.finishTransition()
}

// timely is the hold if its time is not over. It does not end one whose time is over: that is
// a transition of its own name.
func (r *Entry) timely() *Hold {
	if h := r.hold; h != nil && r.Shard.Now() < h.Until() {
		return h
	}
	return nil
}

// yieldToReaders is called when the outermost hold has ended: those that are BehindWriter come next.
func (r *Entry) yieldToReaders() {
	if r.Shard.anyBehind(r) {
		r.blocked.Block(YieldingToReaders)
	}
}

// advanceReaders has those go on that are BehindWriter r, if it is their turn.
func (r *Entry) advanceReaders(rd *Ready) {
	if r.endingContexts != 0 || r.hold != nil {
		return
	}
	if r.blocked == YieldingToReaders || r.waiters.Len() == 0 && r.Shard.anyBehind(r) {
		rd.AdvanceReaders = r
	}
}
