package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
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
func (m Mutex) State(ctx context.Context) (State, error) { return m.state(ctx, true).answer(ctx) }

// StateAsync is State without the waiting. It never blocks.
func (m Mutex) StateAsync(ctx context.Context) *Future[State] {
	return &m.state(ctx, false).fut
}

func (m Mutex) state(ctx context.Context, waits bool) *question[State] {
	return pose(ctx, m, inquiry[State]{
		how: reads,
		encode: func(dst []byte, form resp.Form) []byte {
			return script.AppendState(dst, form, m.key.Name)
		},
		verdict: func(v resp.Value, why error) (State, error) {
			if why != nil {
				return State{}, m.about(why)
			}
			s, err := m.stateIn(v)
			return s, m.about(err)
		},
	}, waits)
}

// stateIn reads the answer.
func (m Mutex) stateIn(v resp.Value) (State, error) {
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
			s.Mine = s.Mine || m.home.owns(field)
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
// that has it by then loses it. The plain readers of a process are one owner, too: all of them
// lose it. An empty id is ErrInvalid.
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
	return m.forceUnlock(ctx, opts, true).answer(ctx)
}

// ForceUnlockAsync is ForceUnlock without the waiting. It never blocks. If ctx ends first, the
// future ends, with ErrOutcomeUnknown if the command was sent. Abandon takes nothing back: the
// command goes on.
func (m Mutex) ForceUnlockAsync(ctx context.Context, opts ...ForceOption) *Future[bool] {
	return &m.forceUnlock(ctx, opts, false).fut
}

func (m Mutex) forceUnlock(ctx context.Context, opts []ForceOption, waits bool) *question[bool] {
	o := forceOptionsOf(opts)
	return pose(ctx, m, inquiry[bool]{
		how: writes, invalid: o.invalid,
		encode: func(dst []byte, form resp.Form) []byte {
			return m.home.table.AppendForce(dst, form, m.key, o.holder)
		},
		verdict: m.changed,
	}, waits)
}

func forceOptionsOf(opts []ForceOption) (o forceOptions) {
	for _, opt := range opts {
		if opt == nil {
			o.invalid = reason.Invalid("a nil ForceOption")
			break
		}
		opt.applyForce(&o)
	}
	return o
}

// changed is the verdict of a script that says whether it did what it is for.
func (m Mutex) changed(v resp.Value, why error) (bool, error) {
	switch {
	case why != nil:
		return false, m.about(why)
	case v.Kind != wire.KindInt:
		return false, m.about(reason.Because(ErrOutcomeUnknown, drive.ErrReply))
	case v.Int == script.Unheard:
		m.home.logUnheard(m.key.Name)
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
