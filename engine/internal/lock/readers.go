package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/internal/clock"
)

// The plain readers of a name are one owner on the server: the read grant of this process. A plain
// reader is under the watchdog, without MaxHold and replicas, and no part of a RedLock. The first
// one acquires. Those that arrive while the grant is held join it: each gets another Hold of the
// same Grant, and no command is sent. The last one to leave releases it.
//
//	this process                                    the server
//	A locks: acquire  ------------------------->    one owner
//	B locks: joins
//	A unlocks: at once, B stays
//	B unlocks: release  ----------------------->    none
//
// Every other reader has a Grant and an Entry of its own. A reader beside a writer has them too,
// but is the read grant of the process from the moment when the writer has been released.
//
// Readers that come and go would keep the lock for good. So a grant has a turn of HandOverTime. After
// the turn, readers that arrive wait for the release, for 10 ms at most. Then they join, and a new turn
// begins. If the grant is released by then, they skip a turn, as the head of a Mutex does after a
// hand-over.
//
// Invariants, under the shard's lock:
//
//  1. A grant is joined only while its hold is live, by the clock too, and while no writer of this process
//     holds the lock or has contexts that are still ending. The release begins when the last hold leaves
//     live, so nobody joins a grant whose release is out, or has yet to be sent:
//
//     the last reader              a reader that arrives
//     unlocks: releasing
//     waits for a connection
//     .                            does not join: asks as an owner of its own
//  2. Grant.joined has all holds of the grant, and Entry.hold is the first of them. An unlocked hold
//     leaves at once if there are others, and its Unlock returns when its contexts have ended. The last one is
//     released as in any Entry.
//  3. A loss of the grant ends all of its holds in one transition. While contexts of any of them are alive,
//     neither the compensation nor the release of the last one is sent (Entry.endingContexts).
//  4. An Entry of readers has a hold or waiters, never both. So waiters that are BehindWriter a writer do
//     not hold back the release that this writer waits for.
//  5. The server counts a joint owner once. Re-entries are counted here, one at a time, and their leases end
//     here. So no command concerns one of several holds.
//  6. Only a grant is joined, never an acquire that is out. So an owner that is in doubt has no hold,
//     and its compensation takes the lock from nobody.

// releaseFor is how long readers that arrive after a turn wait for the release.
const releaseFor = 10 * time.Millisecond

// joins reports whether a is plain, and of a kind that shares a grant.
func (r *Entry) joins(a *Request) bool {
	cfg := r.Shard.Config
	return r.Shard.Traits[a.Kind].Entries == PerReader && cfg.HandOverFor >= serial.YieldFor && a.plain() &&
		(a.Acks == 0 || a.Acks == DefaultAcks && cfg.Replicas == 0)
}

// For is the Entry where a waits together with others, nil if it needs one of its own: a TryLock
// waits for no other's attempt, and a reader that has to stay behind a writer must not wait with
// readers that arrived before that writer.
func (s *Readers) For(a *Request) *Entry {
	q := s.queue
	if q == nil || a.Try() || a.writer() != nil || !q.joins(a) || q.blocked != BehindWriter && q.behind(a) != nil {
		return nil
	}
	return q
}

// gather has readers that arrive from now on wait together with a, which is being admitted.
func (r *Entry) gather(a *Request) {
	if r.member != 0 && !a.Try() && a.writer() == nil && r.joins(a) {
		r.Shard.readers(r).queue = r
	}
}

// open is the hold that may be joined now; nil if there is none.
func (s *Readers) open() *Hold {
	if s == nil || s.grant == nil {
		return nil
	}
	if w := s.grant.Shard.ahead(s.grant); w != nil && (w.hold != nil || w.endingContexts != 0) {
		return nil
	}
	return s.grant.timely() // nil once it has ended: its time is over then
}

// share has the waiters of r, and of the queue, join what was granted to r just now, and readers that arrive
// from now on.
func (r *Entry) share(now clock.Instant, rd *Ready) {
	s := r.Shard.readers(r)
	if !r.hold.joint {
		if s != nil && (r.member == 0 || s.grant == r) {
			// A writer was granted the lock, so this grant was removed; its renewal will tell. Or it was lost,
			// and a request that was to re-enter it has the lock for itself.
			s.grant = nil
		}
		return
	}
	if s.open() == nil {
		s.grant, s.turnEnds = r, now.Add(r.Shard.Config.HandOverFor)
	}
	r.joinAll(r.hold, now, rd)
	if q := s.queue; q == r || q != nil && q.blocked != BehindWriter && s.open() != nil {
		s.queue = nil
		q.joinAll(r.hold, now, rd) // whatever became of their attempt, which may be out
		q.finishTransition()
	}
}

// admitReaders has the waiters of r join the grant. After its turn they sleep once, waiting for the release. It reports
// false if there is no grant, so that the head has to try.
func (r *Entry) admitReaders(rd *Ready) bool {
	a := r.First()
	if r.member == 0 || a == nil || !r.joins(a) {
		return false
	}
	s := r.Shard.readers(r)
	h := s.open()
	if h == nil {
		return false
	}
	now := r.Shard.Stamp()
	if now >= s.turnEnds {
		if r.sub == nil { // else they have slept
			r.lastAttempt = HeldHere
			w := r.ensureSubscription()
			w.Sleep()
			w.setTimer(now.Add(releaseFor))
			return true
		}
		s.turnEnds = now.Add(r.Shard.Config.HandOverFor)
	}
	r.joinAll(h, now, rd)
	return true
}

// yield has readers that sleep after a turn skip the next one: the grant has been released.
func (s *Readers) yield(o *Outcome) {
	if q := s.queue; q != nil && q.Cmd.Action == NoCommand {
		q.yield(o)
	}
}

// joinAll has the waiters of r join h.
func (r *Entry) joinAll(h *Hold, now clock.Instant, rd *Ready) {
	for a := r.First(); a != nil; a = r.First() {
		h.join(a, now, rd)
	}
}

// join grants another hold of the grant of h.
func (h *Hold) join(a *Request, now clock.Instant, rd *Ready) {
	next := h.another(a, now)
	if h.joined == nil {
		h.joined = new(joined)
		h.joined.holds = append(h.joined.room[:0], h)
	}
	next.place = int32(len(h.joined.holds))
	h.joined.holds = append(h.joined.holds, next)
	a.grant(next, rd)
}

// leaveOthers takes h out of its grant, once. It reports false, and does nothing, if h is the last hold.
func (h *Hold) leaveOthers() bool {
	if h.place < 0 || h.joined == nil || len(h.joined.holds) == 1 {
		return h.place < 0
	}
	all := h.joined.holds
	last := all[len(all)-1]
	all[h.place], last.place, h.place = last, h.place, -1
	all[len(all)-1] = nil
	h.joined.holds = all[:len(all)-1]
	h.Entry.hold = all[0]
	return true
}

// endHere completes the end of a joint hold that the server does not count, one of several or a re-entry,
// once its contexts have ended. Then the next re-entry has its turn.
func (h *Hold) endHere(rd *Ready) {
	switch {
	case !h.joint:
	case h.Parent == nil && h.state == releasing && h.leaveOthers() && h.IsAnnounced():
		h.released(nil, rd)
	case h.Parent != nil && h.IsAnnounced():
		if h.state == releasing {
			h.released(nil, rd)
		}
		h.Parent.child = nil
		h.Parent.reenterHere(rd)
	}
}

// reenterHere lets the first waiting request re-enter h, a joint hold.
func (h *Hold) reenterHere(rd *Ready) {
	if h.state != live || h.child != nil || !h.pending() {
		return
	}
	a, _ := h.extra.children.Front()
	now := h.Entry.Shard.Now()
	h.Entry.reenterReplied(&Command{Action: Reentering, req: a}, &Outcome{Sent: now, Now: now}, rd)
	h.refuseTries(rd)
}
