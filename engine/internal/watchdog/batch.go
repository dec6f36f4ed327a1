package watchdog

import (
	"cmp"
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
	"github.com/pawl-lock/pawl/wheel"
)

// batchSize bounds the locks of one script: the server is blocked for about
// 1.6 µs per lock, so 64 cost the others a tenth of a millisecond.
const batchSize = 64

// mostNames is how many holds a failed round names.
const mostNames = 5

type batchState uint8

const (
	waiting  batchState = iota // to be sent: at first, and when it failed, by the timer or Resume
	inFlight                   // the script is out
	finished
)

// batch is one renewal script and its retries.
//
//	waiting --launch--> inFlight --reply--> finished
//	   |  ^                 |
//	   |  +-----failure-----+
//	   +--nobody left--> finished
//
// state and the elements of members are guarded by the Renewer's mu; list belongs to
// the goroutine that launches, and to the lane while inFlight.
type batch struct {
	r       *Renewer
	due     clock.Instant
	state   batchState
	retries int
	slot    uint16    // of its members; without slots, of one of them
	want    resp.Acks // of its members
	kind    kind.Renewal
	members []*Member // at most batchSize; nil: has left
	timer   wheel.Timer
	apart   *splitRetry // of what it is a part of

	list  []script.Renewal
	slots []uint8 // list[i] renews members[slots[i]]

	// step: its only member is renewed key by key, by this command, the first of which was sent
	// at began. 0: all at once.
	step  int
	began clock.Instant
}

// newBatchLocked takes members over, which are nowhere and may share a script.
func (r *Renewer) newBatchLocked(due clock.Instant, members []*Member) *batch {
	k := &batch{r: r, due: due, slot: members[0].slot, want: members[0].sub.Wants(), kind: members[0].sub.Kind(), members: members}
	for i, m := range members {
		m.chunk, m.place = k, int32(i)
	}
	k.timer.Init(k)
	r.mu.chunks.Add(k)
	return k
}

// launch sends the script, for those members that are still there and in time.
func (k *batch) launch() {
	r := k.r
	r.mu.Lock()
	if r.mu.closed || k.state != waiting {
		r.mu.Unlock()
		return
	}
	k.state = inFlight
	var buf [batchSize]*Member
	members := append(buf[:0], k.members...)
	r.mu.Unlock()

	now := r.cfg.Clock.Now()
	if k.list == nil {
		k.list, k.slots = make([]script.Renewal, 0, len(members)), make([]uint8, 0, len(members))
	}
	k.list, k.slots = k.list[:0], k.slots[:0]
	next := never
	for i, m := range members {
		if m == nil {
			continue
		}
		what, live := m.sub.Renewal(now)
		if !live {
			r.drop(k, m)
			continue
		}
		k.list = append(k.list, what)
		k.slots = append(k.slots, uint8(i))
		next = min(next, m.sub.Until())
	}
	if len(k.list) == 0 {
		r.finish(k)
		return
	}
	// From here on the timer watches the members' time, whether a reply comes or not.
	r.cfg.Wheel.Schedule(&k.timer, next)
	r.cfg.Submit(k.slot, k)
}

// drop forgets a member that ended itself.
func (r *Renewer) drop(k *batch, m *Member) {
	r.mu.Lock()
	if m.chunk == k {
		r.leaveLocked(m)
	}
	r.mu.Unlock()
}

// finish ends the batch and returns the members that are still in it, by place.
func (r *Renewer) finish(k *batch) (members []*Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range k.members {
		if m != nil {
			m.chunk = nil
			m.full = len(k.members) == batchSize
		}
	}
	members, k.members = k.members, nil
	k.state = finished
	r.mu.chunks.Remove(k)
	r.cfg.Wheel.Cancel(&k.timer)
	return members
}

// AppendCommand implements resp.Request.
func (k *batch) AppendCommand(dst []byte, form resp.ScriptForm) []byte {
	if k.step > 0 {
		return k.kind.AppendStep(dst, form, k.list[0], k.step)
	}
	return k.kind.Append(dst, form, k.list)
}

// Wants implements resp.DurableRequest.
func (k *batch) Wants() resp.Acks { return k.want }

// NeedsAck implements resp.DurableRequest.
func (k *batch) NeedsAck(resp.Value) bool { return true }

// Wanted implements resp.DurableRequest.
func (k *batch) Wanted() bool { return true }

var (
	errNotAcked = errors.New("renew: too few replicas acknowledged")
	errRefused  = errors.New("renew: the server refused to renew some of these locks")
	errAnswer   = errors.New("renew: the server's answer does not fit the question")
)

// unacked is why an answer does not count: nil if it does.
func unacked(r resp.Reply) error {
	if r.Ack.Missing() {
		return cmp.Or(r.Ack.Err, errNotAcked)
	}
	return nil
}

// Complete implements resp.Request.
func (k *batch) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	r := k.r
	err := reply.Err
	if err == nil && !k.fits(reply.Value) {
		err = errAnswer
	}
	some := cmp.Or(err, unacked(reply)) // at least some were not renewed
	if some == nil && says(reply.Value, script.Refused) {
		some = errRefused
	}
	k.report(reply, some)
	if err != nil {
		k.failed(reply, err)
		return
	}
	k.apart.accepted(r)
	if k.step > 0 {
		if k.step < k.kind.Steps() && some == nil && says(reply.Value, script.Renewed) {
			k.advance(reply)
			return
		}
		if k.step > 1 {
			reply.Sent = k.began // the first key has no more than that
		}
	}
	list, slots := k.list, k.slots
	short := unacked(reply) != nil
	members := r.finish(k)
	for i, v := range reply.Value.Each {
		m := members[slots[i]]
		switch {
		case m == nil:
		case v.Int == script.Renewed && !short:
			m.sub.Renewed(reply.Sent, reply.Now, list[i].Lease, reply.Ack.Count())
			r.repeat(m)
		case v.Int == script.Gone, v.Int == script.WrongType:
			m.sub.Gone(v.Int)
		default:
			// Refused for now, or not acknowledged. A server that refuses key by key answers
			// at once, so the pause is longer than after a first failure.
			r.joinWithin(m, reply.Now, r.backoff(3))
		}
	}
}

// says reports whether an answer, which fits, has that code for any lock.
func says(v resp.Value, code int64) bool {
	for _, e := range v.Each {
		if e.Int == code {
			return true
		}
	}
	return false
}

// report tells an Observer of the script, and why some of its holds were not renewed.
func (k *batch) report(reply resp.Reply, why error) {
	if k.r.cfg.OnBatch == nil {
		return
	}
	round := BatchResult{Slot: k.slot, Holds: len(k.list), Err: why}
	if why != nil {
		for _, one := range k.list[:min(len(k.list), mostNames)] {
			round.Names = append(round.Names, one.Key)
		}
	}
	if reply.Sent != 0 {
		round.Lag, round.RTT = reply.Sent.Sub(k.due), reply.Now.Sub(reply.Sent)
	}
	k.r.cfg.OnBatch(round)
}

// advance sends the next of the commands that renew the member key by key.
func (k *batch) advance(reply resp.Reply) {
	if k.step == 1 {
		k.began = reply.Sent
	}
	k.r.mu.Lock()
	k.step++
	if k.state == inFlight {
		k.state = waiting
	}
	k.r.mu.Unlock()
	k.launch()
}

// fits reports whether the answer is a list of codes, one for each lock. An error or a text
// in it must not be read as code 0, which ends a hold.
func (k *batch) fits(v resp.Value) bool {
	for _, e := range v.Each {
		if e.Kind != wire.KindInt {
			return false
		}
	}
	return v.Kind == wire.KindArray && v.Len() == len(k.list)
}

// backoff is short compared with the lease, so that many tries fit into what is left of it,
// and long enough not to flood a server in trouble.
func (r *Renewer) backoff(retries int) time.Duration {
	base := max(r.cfg.Lease/600, time.Millisecond) // 50 ms at 30 s
	return min(base<<min(retries, 10), r.cfg.Lease/20)
}

// retry arms the timer for the next try, after a pause, or for the first member's end if
// that comes before. A connection that comes back does not wait for it: see Resume.
func (k *batch) retry(pause time.Duration) {
	r := k.r
	r.mu.Lock()
	if r.mu.closed || k.state != inFlight {
		r.mu.Unlock()
		return
	}
	k.state, k.step = waiting, 0
	at := r.cfg.Clock.Now().Add(pause)
	for _, m := range k.members {
		if m != nil {
			at = min(at, m.sub.Until())
		}
	}
	k.retries++
	r.cfg.Wheel.Schedule(&k.timer, at)
	r.mu.Unlock()
}

// Fire implements wheel.Task: it is time to try again, or the time of a member is
// over while the script is out.
func (k *batch) Fire(_ *wheel.Timer, now clock.Instant) {
	r := k.r
	r.mu.Lock()
	var buf [batchSize]*Member
	state, members := k.state, append(buf[:0], k.members...)
	r.mu.Unlock()
	switch state {
	case waiting:
		k.launch() // ends those whose time is over
	case inFlight:
		next := never
		for _, m := range members {
			if m == nil {
				continue
			}
			if until := m.sub.Until(); until > now {
				next = min(next, until)
			} else if _, live := m.sub.Renewal(now); !live {
				r.drop(k, m)
			}
		}
		r.mu.Lock()
		if next != never && k.state == inFlight && !r.mu.closed {
			r.cfg.Wheel.Schedule(&k.timer, next)
		}
		r.mu.Unlock()
	}
}
