package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// querySpec is what a query asks for.
type querySpec[T any] struct {
	effect   queryEffect
	invalid  error // why it is not to be asked
	failFast bool  // it does not wait while the next attempt to connect is not due
	encode   func(dst []byte, form resp.ScriptForm) []byte
	// result makes a result of the answer, or of why there is none. It keeps nothing of v.
	result func(v resp.Value, why error) (T, error)
}

// queryEffect says what a query without an answer may have done, and whether it may be repeated.
type queryEffect uint8

const (
	readOnly   queryEffect = iota // nothing; it may
	writesOnce                    // what it is for; it may not
	idempotent                    // what it is for; it may
)

// query is a command that stands outside the entry' order, and its future. While it has not
// been sent, or may be repeated, it is tried again until Config.CommandTimeout.
//
//	waiting --its context or the time is over------------------+
//	 | ^                                                       v
//	 | | not sent, or may be repeated: for a moment        completed
//	 v |                                                       ^
//	sent --answered, or not to be repeated---------------------+
//
// No other lock is taken under mu.
type query[T any] struct {
	driver.Pending
	querySpec[T]
	home  *Engine
	route uint64
	fut   Future[T]
	retry driver.TaskTimer // the end of the pause

	mu    sync.Mutex
	stage queryStage
	doubt bool          // it may have been executed
	pause time.Duration // the next one
	why   error         // the latest try was not sent
}

type queryStage uint8

const (
	waiting queryStage = iota // before the first try, or between two
	sent                      // an answer will come
	completed
)

// startQuery begins to ask. It does not block. If nobody waits for the answer, the context ends the
// query; a caller who waits looks at that himself.
func startQuery[T any](ctx context.Context, m Mutex, i querySpec[T], waits bool) *query[T] {
	q := &query[T]{querySpec: i, home: m.home, route: m.route, pause: 5 * time.Millisecond}
	if q.home == nil {
		q.home = noEngine() // for its executor
	}
	q.fut.source = q.home
	if err := q.check(ctx, m); err != nil {
		q.fut.resolve(q.result(resp.Value{}, err))
		return q
	}
	q.retry.Init(q.resume)
	q.Begin(ctx, q, q.home.table.At(m.route), driver.Bounds{Wait: m.home.cfg.CommandTimeout}, !waits) // from here on it may be given up
	q.send()
	return q
}

func (q *query[T]) check(ctx context.Context, m Mutex) error {
	if q.invalid != nil {
		return q.invalid
	}
	return m.check(ctx)
}

// check is what is wrong before anything is asked.
func (m Mutex) check(ctx context.Context) error {
	switch {
	case m.home == nil:
		return errZeroMutex
	case m.err != nil:
		return m.err
	case ctx == nil:
		return lockerr.ErrNoContext
	case ctx.Err() != nil:
		return lockerr.Wrap(lockerr.NotAsked, context.Cause(ctx))
	case m.home.table.Closing():
		return ErrClosed
	}
	return nil
}

func (q *query[T]) send() {
	if q.home.table.Closing() {
		q.Cancel(lockerr.Cancel{Cause: ErrClosed})
		return
	}
	q.mu.Lock()
	wanted := q.stage != completed
	if wanted {
		q.stage = sent
	}
	q.mu.Unlock()
	if wanted {
		q.home.table.Client.Submit(q.route, q)
	}
}

// AppendCommand implements resp.Request.
func (q *query[T]) AppendCommand(dst []byte, form resp.ScriptForm) []byte {
	return q.encode(dst, form)
}

// Priority implements resp.PatientRequest.
func (q *query[T]) Priority() resp.Priority { return resp.PriorityNormal }

// Wanted implements resp.PatientRequest.
func (q *query[T]) Wanted() bool { return !q.Over() }

// Complete implements resp.Request.
func (q *query[T]) Complete(r resp.Reply) {
	switch driver.Classify(r.Err) {
	case lock.Replied:
		q.end(r.Value, nil)
	case lock.WrongType:
		q.end(resp.Value{}, lockerr.Wrap(ErrWrongType, r.Err))
	case lock.Refused:
		q.end(resp.Value{}, r.Err)
	case lock.Unknown:
		q.unanswered(r.Err)
	case lock.NotSent:
		if why := q.home.table.Client.Pausing(q.route); why != nil && q.failFast {
			q.end(resp.Value{}, lockerr.Wrap(ErrUnavailable, why))
			return
		}
		q.wait(r.Err)
	case lock.LaneFull, lock.Cancelled, lock.ClientClosed, lock.RetryLater:
		if driver.Begun(r.Err) {
			q.unanswered(r.Err)
			return
		}
		q.wait(r.Err)
	}
}

// unanswered goes on after a try of which nobody knows what became.
func (q *query[T]) unanswered(why error) {
	q.mu.Lock()
	q.doubt = q.doubt || q.effect != readOnly
	q.mu.Unlock()
	if q.effect == writesOnce {
		q.end(resp.Value{}, why)
		return
	}
	if resp.Unreadable(why) {
		q.end(resp.Value{}, lockerr.Wrap(ErrUnavailable, why))
		return
	}
	q.wait(why)
}

// wait has it asked again in a moment.
func (q *query[T]) wait(why error) {
	q.mu.Lock()
	if q.stage == completed {
		q.mu.Unlock()
		return
	}
	q.stage, q.why = waiting, why
	pause := q.pause
	q.pause = min(2*pause, 100*time.Millisecond)
	q.mu.Unlock()
	q.List() // nobody else would end the pause when the engine closes
	q.home.table.Timers.Schedule(&q.retry.Timer, q.home.clock.Now().Add(pause))
	if q.Over() { // meanwhile: who ended it may have been here first
		q.home.table.Timers.Cancel(&q.retry.Timer)
	}
}

// resume ends a pause. From then on the answer ends it, also if the engine is being closed.
func (q *query[T]) resume() {
	q.Unlist()
	q.send()
}

// end gives it its answer, or why there will be none, unless it has been given up.
func (q *query[T]) end(v resp.Value, why error) {
	q.mu.Lock()
	was, doubt := q.stage, q.doubt
	q.stage = completed
	q.mu.Unlock()
	if was != completed {
		q.settle(v, why, doubt)
	}
}

// Cancel implements driver.PendingOwner.
func (q *query[T]) Cancel(s lockerr.Cancel) bool {
	q.mu.Lock()
	was, doubt, why := q.stage, q.doubt, q.why
	q.stage = completed
	q.mu.Unlock()
	switch {
	case was == completed:
		return false
	case was == sent:
		doubt = doubt || q.effect != readOnly
		why = q.gaveUp(s.Cause)
	case s.Cause == ErrClosed:
		why = ErrClosed
	case why == nil && s.Cause != nil: // before the first try
		why = lockerr.Wrap(lockerr.NotAsked, s.Cause)
	default:
		why = q.unavailable(why, s.Cause)
	}
	q.settle(resp.Value{}, why, doubt)
	return true
}

// gaveUp is the error of one whose asker stopped waiting for the answer, for that cause, or because
// the time was over.
func (q *query[T]) gaveUp(cause error) error {
	what := error(lockerr.NoAnswer)
	if cause == nil {
		what, cause = ErrUnavailable, lockerr.ErrPatience
	}
	if q.effect != readOnly {
		return cause
	}
	return lockerr.Wrap(what, cause)
}

// unavailable is the error of one that could not be asked before its asker stopped.
func (q *query[T]) unavailable(why, cause error) error {
	is := lockerr.Parts(q.home.unavailable(q.route, why))
	if cause != nil {
		is = slices.Insert(slices.Clone(is), 1, cause)
	}
	return lockerr.Wrap(is...)
}

// settle tells the caller.
func (q *query[T]) settle(v resp.Value, why error, doubt bool) {
	q.Finish()
	q.home.table.Timers.Cancel(&q.retry.Timer)
	if why != nil && doubt {
		why = lockerr.Wrap(slices.Insert(slices.Clone(lockerr.Parts(why)), 0, ErrOutcomeUnknown)...)
	}
	q.fut.resolve(q.result(v, why))
}

// Over implements driver.PendingOwner.
func (q *query[T]) Over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stage == completed
}

// answer is the synchronous half: it waits for the answer or for the context.
func (q *query[T]) answer(ctx context.Context) (T, error) { return q.fut.await(ctx, &q.Pending) }

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

func (m Mutex) state(ctx context.Context, waits bool) *query[State] {
	return startQuery(ctx, m, querySpec[State]{
		effect: readOnly,
		encode: func(dst []byte, form resp.ScriptForm) []byte {
			return script.AppendState(dst, form, m.key.Name)
		},
		result: func(v resp.Value, why error) (State, error) {
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
	owners, mode, ok := inspect.Owners(v, 1)
	if !ok {
		return State{}, lockerr.Wrap(ErrWrongType, driver.ErrReply)
	}
	for _, e := range v.Each {
		s.TTL = time.Duration(e.Int) * time.Millisecond
		break
	}
	s.Mode = mode
	for _, o := range owners {
		s.Holders = append(s.Holders, Holder{ID: o.ID, Count: o.Count})
		s.Mine = s.Mine || m.home.owns(o.ID)
	}
	s.Locked = len(s.Holders) > 0
	if !s.Locked {
		s.Mode, s.TTL = "", 0
	} else if s.Mode == "" {
		s.Mode = "exclusive"
	}
	return s, nil
}

// asks sends commands that only read to the server of the name.
func (m Mutex) asks(ctx context.Context) inspect.Ask {
	return func(words ...string) (v resp.Value, refused, err error) {
		v, err = startQuery(ctx, m, querySpec[resp.Value]{
			encode: func(dst []byte, _ resp.ScriptForm) []byte { return wire.AppendCommand(dst, words...) },
			result: func(v resp.Value, why error) (resp.Value, error) { return v.Clone(), why },
		}, true).answer(ctx)
		if e, ok := err.(*resp.ServerError); ok {
			return resp.Value{}, e, nil
		}
		return v, nil, err
	}
}

// forbidden reports whether the server refuses a command to this user.
func forbidden(err error) bool {
	e, ok := err.(*resp.ServerError)
	return ok && resp.RefusalOf(e).Forbidden()
}
