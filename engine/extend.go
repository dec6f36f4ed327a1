package engine

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// extension is an Extend under way. One at a time goes to the server; a further
// one waits for it and then takes its own turn.
type extension struct {
	lease   time.Duration
	dropped bool // the caller stopped waiting while the command was out
	done    chan struct{}
	err     error
}

// finish tells the caller. The caller of finish holds the shard's lock.
func (x *extension) finish(err error) {
	x.err = err
	close(x.done)
}

func (h *holding) extendBy(ctx context.Context, d time.Duration) error {
	e := h.eng
	switch {
	case d < time.Millisecond || d > maxDuration:
		return invalid("Extend (%v) must be between 1ms and %v", d, maxDuration)
	case d <= e.margin(d):
		return invalid("Extend (%v) must be longer than the safety margin (%v)", d, e.margin(d))
	case h.watched || h.follows:
		return invalid("Extend on a hold that the watchdog renews: take it with Lease")
	}
	wait := e.cfg.CommandTimeout
	if h.member.Want() != 0 {
		wait += e.cfg.AckTimeout
	}
	patience := time.NewTimer(wait)
	defer patience.Stop()
	x := &extension{lease: d, done: make(chan struct{})}
	for {
		var fx effects
		var ahead *extension
		h.sh.mu.Lock()
		h.check(e.clock.Now(), &fx)
		err := h.ending
		switch {
		case err != nil:
			h.res.goOnAfter(&fx)
		case h.more().extend != nil:
			ahead = h.extra.extend
		default:
			h.extra.extend = x
			h.res.next(&fx)
		}
		h.sh.mu.Unlock()
		fx.run(e)
		if err == ErrReleased {
			return ErrNotHeld
		}
		if err != nil {
			return err
		}
		next := x
		if ahead != nil {
			next = ahead
		}
		select {
		case <-next.done:
			if next == x {
				return x.err
			}
		case <-ctx.Done():
			return h.stopExtending(x, context.Cause(ctx))
		case <-patience.C:
			return h.stopExtending(x, ErrUnavailable)
		}
	}
}

// stopExtending gives the wait up. If the command is out it may still succeed;
// then the lease is longer than the caller knows, which is harmless. It keeps its
// place until the reply, which would else be taken for that of the next Extend:
//
//	Extend(10 s): sent; its ctx ends
//	Extend(60 s) takes the place
//	reply to the first: the second is told 60 s
func (h *holding) stopExtending(x *extension, cause error) error {
	h.sh.mu.Lock()
	defer h.sh.mu.Unlock()
	select {
	case <-x.done:
		return x.err
	default:
	}
	if cmd := &h.res.cmd; cmd.what == extending && cmd.hold == h && h.extra.extend == x {
		x.dropped = true
	} else if h.extra.extend == x {
		h.extra.extend = nil
	}
	return fail(ErrOutcomeUnknown, cause)
}

// extendReplied goes on after the reply of an Extend.
func (r *resource) extendReplied(c *command, o outcome, fx *effects) {
	h := c.hold
	if h.state != live {
		return
	}
	x := h.extra.extend
	var err error
	switch {
	case o.verdict == answered && o.code == script.Renewed && o.ack.Missing():
		err = h.eng.ackError(h.name, o.ack) // the primary has it longer than we count on
		h.sh.count.unacked++
	case o.verdict == answered && o.code == script.Renewed:
		h.setAcked(o.ack.Count())
		h.setUntil(max(h.Until(), h.eng.heldUntil(o.sent, c.span)))
		h.lease = max(h.lease, c.span)
		h.wakeAt(h.timeOut())
		h.check(o.now, fx) // it may have come too late
		err = h.ending
	case o.verdict == answered && o.code == script.Gone:
		r.lose(h.root(), GoneOnServer, fx) // tells x
		return
	case o.verdict == answered && o.code == script.WrongType, o.verdict == wrongType:
		r.lose(h.root(), TakenOnServer, fx)
		return
	case o.verdict == denied:
		err = o.err
	case !x.dropped:
		return // harmless to repeat: next sends it again
	}
	if h.extra.extend == x { // the end of the hold has told x already
		h.extra.extend = nil
		x.finish(err)
	}
}
