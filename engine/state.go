package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/redact"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// State is what the server knew about a lock at one moment.
type State struct {
	// Locked: somebody holds it.
	Locked bool
	// Mine: one of the holders is this engine.
	Mine bool
	// Mode is "" for a free lock, else "exclusive", or "read" or "write" for an RWMutex.
	Mode string
	// Holders are the owners that hold the lock, Redisson's included.
	Holders []Holder
	// TTL is what is left of the lease. It is negative if the key has no expiry, and
	// zero for a free lock.
	TTL time.Duration
}

// Holder is one owner of a lock.
type Holder struct {
	// ID is the owner on the server: "<uuid>:<number>", and ":write" after that for the writer of
	// a read-write lock. A negative number is nobody: the lock was given up, and its MinHold
	// keeps it taken.
	ID string
	// Count is how many times this owner holds the lock, re-entries included.
	Count int
}

// State asks the server who holds the lock. It is one command and changes nothing. It waits
// at most Config.CommandTimeout.
func (m Mutex) State(ctx context.Context) (State, error) {
	s, err := m.state(ctx)
	return s, m.about(err)
}

func (m Mutex) state(ctx context.Context) (State, error) {
	if err := m.usable(); err != nil {
		return State{}, err
	}
	v, err := m.engine().ask(ctx, m.route, reads, func(dst []byte, form resp.Form) []byte {
		return script.AppendState(dst, form, m.key.Name)
	})
	if err != nil {
		return State{}, err
	}
	var s State
	ok := v.Kind == wire.KindArray && v.Len()%2 == 1
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
			s.Mine = s.Mine || m.engine().owns(field)
		}
		return true
	})
	if !ok {
		return State{}, reason.Because(ErrWrongType, drive.ErrReply)
	}
	s.Locked = len(s.Holders) > 0
	if !s.Locked {
		s.Mode, s.TTL = "", 0
	} else if s.Mode == "" {
		s.Mode = "exclusive"
	}
	return s, nil
}

// ForceOption narrows ForceUnlock.
type ForceOption interface{ applyForce(*forceOptions) }

type forceOptions struct {
	holder  string
	invalid error
}

// IfHolder makes ForceUnlock act only if that owner, as State shows it, holds the lock.
// So you cannot take the lock from an owner that got it after you looked. Holds of one
// process that hand the lock over to each other are one owner (see Config.HandOver): the one
// that has it by then loses it. An empty id is ErrInvalid.
func IfHolder(id string) ForceOption { return ifHolder(id) }

type ifHolder string

func (h ifHolder) applyForce(o *forceOptions) {
	if o.holder = string(h); h == "" { // the script takes that for any holder
		o.invalid = reason.Invalid("IfHolder must name an owner, as State shows it; without IfHolder, ForceUnlock takes the lock from any owner")
	}
}

func (h ifHolder) String() string               { return fmt.Sprintf("IfHolder(%q)", string(h)) }
func (h ifHolder) Format(f fmt.State, c rune)   { redact.Format(f, c, h.String()) }
func (h ifHolder) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// ForceUnlock takes the lock away from its holder, and reports whether there was one.
// The holder is told at its next renewal, or at once if somebody in its process waits
// for the lock (of a FairMutex: if that is the next in the queue; a reader: if that is a writer, and
// gets the lock), and always before another hold of its process begins that excludes it. Until then
// it may go on working.
// The command cannot be repeated safely, so it is sent once: if its answer is lost, or
// does not come within Config.CommandTimeout, the error is ErrOutcomeUnknown.
func (m Mutex) ForceUnlock(ctx context.Context, opts ...ForceOption) (bool, error) {
	removed, err := m.forceUnlock(ctx, opts)
	return removed, m.about(err)
}

func (m Mutex) forceUnlock(ctx context.Context, opts []ForceOption) (bool, error) {
	if err := m.usable(); err != nil {
		return false, err
	}
	var o forceOptions
	for _, opt := range opts {
		if opt == nil {
			return false, reason.Invalid("a nil ForceOption")
		}
		opt.applyForce(&o)
	}
	if o.invalid != nil {
		return false, o.invalid
	}
	v, err := m.engine().ask(ctx, m.route, writes, func(dst []byte, form resp.Form) []byte {
		return m.engine().table.AppendForce(dst, form, m.key, o.holder)
	})
	if err != nil {
		return false, err
	}
	if v.Kind != wire.KindInt {
		return false, reason.Because(ErrOutcomeUnknown, drive.ErrReply)
	}
	if v.Int == script.Unheard {
		m.engine().logUnheard(m.key.Name)
	}
	return v.Int == script.Done || v.Int == script.Unheard, nil
}

// about names the lock in an error, if it has a name.
func (m Mutex) about(err error) error {
	if m.name == "" {
		return err
	}
	return aboutA(m.key.Kind.What(), m.name, err)
}

func (m Mutex) usable() error {
	if m.home == nil {
		return errZeroMutex
	}
	return m.err
}

// question is a command that stands outside the resources' order: it reads, or is
// sent once.
type question struct {
	encode func(dst []byte, form resp.Form) []byte
	left   atomic.Bool // nobody waits for the answer
	value  resp.Value
	err    error
	done   chan struct{}
}

// AppendCommand implements resp.Request.
func (q *question) AppendCommand(dst []byte, form resp.Form) []byte { return q.encode(dst, form) }

// Rank implements resp.PatientRequest.
func (q *question) Rank() resp.Rank { return resp.Later }

// Wanted implements resp.PatientRequest.
func (q *question) Wanted() bool { return !q.left.Load() }

// Complete implements resp.Request.
func (q *question) Complete(r resp.Reply) {
	q.value, q.err = r.Value.Clone(), r.Err
	close(q.done)
}

// asking says what a question without an answer may have done, and whether it may be repeated.
type asking uint8

const (
	reads    asking = iota // nothing; it may
	writes                 // what it is for; it may not
	rewrites               // what it is for; it may
)

// ask sends a command and waits for its answer. While it has not been sent, or may
// be repeated, it is tried again until Config.CommandTimeout.
func (e *Engine) ask(ctx context.Context, route uint64, how asking, encode func([]byte, resp.Form) []byte) (resp.Value, error) {
	if ctx == nil {
		return resp.Value{}, reason.ErrNoContext
	}
	if ctx.Err() != nil { // then nothing is sent
		return resp.Value{}, reason.Because(reason.NotAsked, context.Cause(ctx))
	}
	v, doubt, err := e.askOften(ctx, route, how, encode)
	if err != nil && doubt {
		err = reason.Because(slices.Insert(slices.Clone(reason.Of(err)), 0, ErrOutcomeUnknown)...)
	}
	return v, err
}

// askOften also reports whether a question that writes may have been executed, if there is an
// error.
func (e *Engine) askOften(ctx context.Context, route uint64, how asking, encode func([]byte, resp.Form) []byte) (v resp.Value, doubt bool, err error) {
	patience, stop := e.world.After(e.cfg.CommandTimeout)
	defer stop()
	pause := 5 * time.Millisecond
	for {
		if e.table.Closing() {
			return resp.Value{}, doubt, ErrClosed
		}
		q := &question{encode: encode, done: make(chan struct{})}
		e.table.Client.Submit(route, q)
		switch e.world.Wait(q.done, ctx.Done(), patience) {
		case 0:
			switch drive.Classify(q.err) {
			case machine.Answered:
				return q.value, false, nil
			case machine.WrongType:
				return resp.Value{}, doubt, reason.Because(ErrWrongType, q.err)
			case machine.Denied:
				return resp.Value{}, doubt, q.err
			case machine.NotSent, machine.Full, machine.Unwanted, machine.Shut, machine.Busy: // again, as long as there is time
			case machine.Unknown:
				if doubt = how != reads; how == writes {
					return resp.Value{}, doubt, q.err
				}
			}
		case 1:
			may, err := e.unanswered(route, q, how, context.Cause(ctx))
			return resp.Value{}, doubt || may, err
		case 2:
			may, err := e.unanswered(route, q, how, nil)
			return resp.Value{}, doubt || may, err
		}
		again, stopAgain := e.world.After(pause)
		pause = min(2*pause, 100*time.Millisecond)
		switch e.world.Wait(again, ctx.Done(), patience) {
		case 1:
			stopAgain()
			return resp.Value{}, doubt, e.unasked(route, q, context.Cause(ctx))
		case 2:
			stopAgain()
			return resp.Value{}, doubt, e.unasked(route, q, nil)
		}
	}
}

// unanswered is the error of a question whose asker stopped waiting for the answer: its
// context ended, for that cause, or the time was over. The answer may have come at the
// same moment, and say that nothing was sent. If not, a question that writes is in doubt.
func (e *Engine) unanswered(route uint64, q *question, how asking, cause error) (doubt bool, err error) {
	q.left.Store(true)
	select {
	case <-q.done:
		if v := drive.Classify(q.err); v != machine.Answered && v != machine.Unknown {
			return false, e.unasked(route, q, cause)
		}
	default:
	}
	what := error(reason.NoAnswer)
	if cause == nil {
		what, cause = ErrUnavailable, reason.ErrPatience
	}
	if how != reads {
		return true, cause
	}
	return false, reason.Because(what, cause)
}

// unasked is the error of a question that could not be asked before its asker stopped.
func (e *Engine) unasked(route uint64, q *question, cause error) error {
	is := reason.Of(e.unavailable(route, q.err))
	if cause != nil {
		is = slices.Insert(slices.Clone(is), 1, cause)
	}
	return reason.Because(is...)
}
