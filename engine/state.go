package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
)

// State is what the server knew of a lock at one moment.
type State struct {
	// Locked: somebody holds it.
	Locked bool
	// Mine: one of the holders is this engine.
	Mine bool
	// Mode is "" for a free lock, "exclusive", or "read" or "write" if the key is
	// a read-write lock of Redisson.
	Mode string
	// Holders are who holds it, Redisson's included.
	Holders []Holder
	// TTL is what the lease has left; negative if the key has no expiry. Zero for a
	// free lock.
	TTL time.Duration
}

// Holder is one owner of a lock.
type Holder struct {
	// ID is the owner as it stands on the server: "<uuid>:<number>".
	ID string
	// Count is how many times it is held, re-entries included.
	Count int
}

// State asks the server who holds the lock. One command; it changes nothing.
func (m Mutex) State(ctx context.Context) (State, error) {
	if err := m.usable(); err != nil {
		return State{}, err
	}
	v, err := m.eng.ask(ctx, m.route, true, func(dst []byte, form resp.Form) []byte {
		return script.AppendState(dst, form, m.key.name)
	})
	if err != nil {
		return State{}, err
	}
	var s State
	ok := v.Kind == resp.KindArray && v.Len()%2 == 1
	var field string
	v.Each(func(i int, e resp.Value) bool {
		switch {
		case i == 0:
			s.TTL = time.Duration(e.Int) * time.Millisecond
		case i%2 == 1:
			field = string(e.Bytes)
		case field == "mode":
			s.Mode = string(e.Bytes)
		default:
			count, err := strconv.Atoi(string(e.Bytes))
			ok = ok && err == nil
			s.Holders = append(s.Holders, Holder{field, count})
			s.Mine = s.Mine || m.eng.owns(field)
		}
		return true
	})
	if !ok {
		return State{}, fail(ErrWrongType, errReply)
	}
	s.Locked = len(s.Holders) > 0
	if !s.Locked {
		s.TTL = 0
	} else if s.Mode == "" {
		s.Mode = "exclusive"
	}
	return s, nil
}

// ForceOption narrows ForceUnlock.
type ForceOption interface{ applyForce(*forceOptions) }

type forceOptions struct{ holder string }

type forceFunc func(*forceOptions)

func (f forceFunc) applyForce(o *forceOptions) { f(o) }

// IfHolder makes ForceUnlock act only if the lock is held by that owner, as State
// shows it: not by one who came in since you looked.
func IfHolder(id string) ForceOption { return forceFunc(func(o *forceOptions) { o.holder = id }) }

// ForceUnlock takes the lock away from whoever holds it and reports whether anybody
// did. The holder is told at its next renewal, or at once if somebody in its process
// waits for the lock; it may go on working until then. It cannot be repeated safely,
// so it is sent once: ErrOutcomeUnknown if the answer was lost.
func (m Mutex) ForceUnlock(ctx context.Context, opts ...ForceOption) (bool, error) {
	if err := m.usable(); err != nil {
		return false, err
	}
	var o forceOptions
	for _, opt := range opts {
		if opt == nil {
			return false, invalid("a nil ForceOption")
		}
		opt.applyForce(&o)
	}
	channel := m.channel()
	v, err := m.eng.ask(ctx, m.route, false, func(dst []byte, form resp.Form) []byte {
		return script.AppendForce(dst, form, m.key.name, o.holder, channel)
	})
	if err != nil {
		return false, err
	}
	if v.Kind != resp.KindInt {
		return false, fail(ErrOutcomeUnknown, errReply)
	}
	return v.Int == script.Done, nil
}

func (m Mutex) channel() script.Channel {
	r := resource{sh: m.eng.table.shard(m.route), name: m.key.name, kind: m.key.kind}
	return r.channel()
}

func (m Mutex) usable() error {
	if m.eng == nil {
		return errZeroMutex
	}
	return m.err
}

// question is a command that stands outside the resources' order: it reads, or is
// sent once.
type question struct {
	encode func(dst []byte, form resp.Form) []byte
	value  resp.Value
	err    error
	done   chan struct{}
}

// AppendCommand implements resp.Request.
func (q *question) AppendCommand(dst []byte, form resp.Form) []byte { return q.encode(dst, form) }

// Complete implements resp.Request.
func (q *question) Complete(r resp.Reply) {
	q.value, q.err = r.Value.Clone(), r.Err
	close(q.done)
}

// ask sends a command and waits for its answer. While it has not been sent, or may
// be repeated, it is tried again until Config.CommandTimeout.
func (e *Engine) ask(ctx context.Context, route uint64, repeat bool, encode func([]byte, resp.Form) []byte) (resp.Value, error) {
	patience := time.NewTimer(e.cfg.CommandTimeout)
	defer patience.Stop()
	pause := 5 * time.Millisecond
	for {
		if e.closing.Load() {
			return resp.Value{}, ErrClosed
		}
		q := &question{encode: encode, done: make(chan struct{})}
		e.client.Submit(route, q)
		select {
		case <-q.done:
			switch classify(q.err) {
			case answered:
				return q.value, nil
			case wrongType:
				return resp.Value{}, fail(ErrWrongType, q.err)
			case denied:
				return resp.Value{}, q.err
			case notSent, busy: // again, as long as there is time
			case unknown:
				if !repeat {
					return resp.Value{}, fail(ErrOutcomeUnknown, q.err)
				}
			}
		case <-ctx.Done():
			return resp.Value{}, e.unanswered(q, repeat, context.Cause(ctx))
		case <-patience.C:
			return resp.Value{}, e.unanswered(q, repeat, nil)
		}
		again := time.NewTimer(pause)
		pause = min(2*pause, 100*time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return resp.Value{}, fail(ErrUnavailable, context.Cause(ctx), q.err)
		case <-patience.C:
			again.Stop()
			return resp.Value{}, fail(ErrUnavailable, q.err)
		}
	}
}

// unanswered is the error of a question whose asker stopped waiting for the answer.
// It may have come at the same moment, and say that nothing was sent.
func (e *Engine) unanswered(q *question, repeat bool, cause error) error {
	out := true
	select {
	case <-q.done:
		v := classify(q.err)
		out = v == answered || v == unknown
	default:
	}
	if cause == nil {
		cause = errors.New("no answer within Config.CommandTimeout")
	}
	if out && !repeat {
		return fail(ErrOutcomeUnknown, cause)
	}
	return fail(ErrUnavailable, cause)
}
