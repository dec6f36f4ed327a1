package watchdog

import (
	"sync/atomic"

	"github.com/pawl-lock/pawl/resp"
)

// failed decides when the batch is sent again, and how. What a server refuses for now, or could not
// be asked, is sent again soon. Any other refusal, in whatever words, is of this command: its locks may
// be of several slots (a proxy in front of shards, or a node of a cluster that was configured as the
// only server) or nodes (a slot is being migrated), or one of them is forbidden. The locks of the others must
// not be lost with that one, so they go one by one. One that is refused alone is asked for seldom: of such
// scripts there may be as many as holds, and it may stay so.
func (k *batch) failed(reply resp.Reply, err error) {
	r := k.r
	denied, _ := err.(*resp.ServerError) // not errors.As: this is an event loop
	var refusal resp.Refusal
	if denied != nil {
		refusal = resp.RefusalOf(denied)
	}
	ofCommand := denied != nil && (refusal.Apart() || !refusal.NotNow())
	switch {
	case ofCommand && len(k.list) > 1:
		k.split()
	case ofCommand && refusal.Apart() && k.step == 0 && k.kind.Steps() > 0:
		k.advance(reply) // the keys of one lock are apart
	default:
		k.apart.refused()
		pause := r.backoff(k.retries)
		if ofCommand && !refusal.Apart() {
			pause = r.cfg.Lease / 6
		}
		k.retry(pause)
	}
}

// split sends the batch again lock by lock: the server did not take its locks together. If
// it takes each alone, later batches have locks of one slot.
func (k *batch) split() {
	r := k.r
	members := r.finish(k)
	var parts []*batch
	apart := new(splitRetry)
	r.mu.Lock()
	for _, m := range members {
		// One that has left, or was taken into another batch since, is somebody else's.
		if m != nil && m.chunk == nil && m.group == nil && !r.mu.closed {
			part := r.newBatchLocked(k.due, []*Member{m})
			part.apart = apart
			parts = append(parts, part)
		}
	}
	apart.left.Store(int32(len(parts))) // under mu: a Resume may send them from then on
	r.mu.Unlock()
	for _, part := range parts {
		part.launch()
	}
}

// splitRetry is what the parts of a batch have in common that was refused; nil: it is no part.
type splitRetry struct {
	left atomic.Int32 // parts without an answer yet; for ever positive once one was refused
}

// accepted notes that the server has taken a part. If it takes all, it was their being together that
// it refused.
func (p *splitRetry) accepted(r *Renewer) {
	if p != nil && p.left.Add(-1) == 0 {
		r.slotted.Store(true)
	}
}

func (p *splitRetry) refused() {
	if p != nil {
		p.left.Add(batchSize)
	}
}
