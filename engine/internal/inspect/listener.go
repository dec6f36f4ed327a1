package inspect

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
	"github.com/pawl-lock/pawl/wheel"
)

const (
	// lookEvery is how long an engine has had a lock before it listens, and how long it has had none before it
	// stops. So what lasts for less costs no command.
	lookEvery = time.Second
	// maxQueued bounds the questions that wait, maxRate those that are answered in a second.
	maxQueued = 16
	maxRate   = 50
)

// Config is what a Listener needs.
type Config struct {
	Client env.Client
	Timers env.Timers
	Clock  clock.Clock
	// Verb is PUBLISH or SPUBLISH.
	Verb func() string
	// Spawn runs a function on a goroutine.
	Spawn func(func())
	// Busy reports whether the engine has any name, and how many it has had so far, or a number that
	// changes with that.
	Busy func() (now bool, sofar uint64)
	// Answer answers a question: nil, if there is nothing to say. It is called on a goroutine of its
	// own, for one question at a time, and may return anything once late: the answer is not published then.
	Answer func(q *Question, late func() bool) *Answer
	// Refused is called once, when the server does not let this user listen.
	Refused func(error)
}

// Listener answers questions for an engine. It listens while the engine has names.
//
//	off --Used--> armed --a look: names--> listening --a look: none, and none since the last--> off
//	  ^             |                          |
//	  +--a look: none                          +--the server refuses--> refused
//
// Invariants:
//
//  1. Used takes no lock: it is called for every new name, under the lock of its shard.
//
//  2. A look stores off before it asks whether there are names. So a name that comes meanwhile either
//     is seen by that, or its Used finds off:
//
//     a name: in the table, then Used      a look
//     .                                    stores off
//     .                                    asks for names, under the locks of the shards
//
//  3. Looks come one after another: one timer leads to them.
//
//  4. mu guards the questions. At most one goroutine answers, as long as there are some.
type Listener struct {
	Config
	state   atomic.Uint32
	timer   wheel.Timer
	channel resp.Channel
	sofar   uint64 // at the latest look

	mu       sync.Mutex
	queue    [][]byte
	arrived  []clock.Instant
	running  bool
	closed   bool
	second   clock.Instant // that maxRate counts
	inSecond int
	dropped  uint64
}

// The states of a Listener.
const (
	off uint32 = iota
	armed
	listening
	refused
)

// NewListener returns one that does not listen yet.
func NewListener(cfg Config) *Listener {
	l := &Listener{Config: cfg}
	l.timer.Init(l)
	l.channel.Init(Channel, l)
	l.channel.Quiet = true // Refused says it
	return l
}

// Used is called when the engine gets a name. It neither blocks nor calls back. l may be nil.
func (l *Listener) Used() {
	if l != nil && l.state.Load() == off {
		l.arm()
	}
}

func (l *Listener) arm() {
	if l.state.CompareAndSwap(off, armed) {
		l.Timers.Schedule(&l.timer, l.Clock.Stamp().Add(lookEvery))
	}
}

// Fire implements wheel.Task: a look.
func (l *Listener) Fire(_ *wheel.Timer, now clock.Instant) {
	before := l.sofar
	was := l.state.Swap(off)
	if was == refused {
		l.state.Store(refused)
		return
	}
	busy, sofar := l.Busy()
	l.sofar = sofar
	switch {
	case was == armed && !busy:
		return
	case was == listening && !busy && sofar == before:
		l.Client.Unsubscribe(&l.channel)
		return
	case was == armed:
		l.Client.Subscribe(&l.channel)
	}
	// Off meanwhile, so a Used may have armed the timer: then this is the next look anyway.
	if !l.state.CompareAndSwap(off, listening) && !l.state.CompareAndSwap(armed, listening) {
		return // refused
	}
	l.Timers.Schedule(&l.timer, now.Add(lookEvery))
}

// Listening reports whether it listens, or asks for it.
func (l *Listener) Listening() bool { return l != nil && l.state.Load() == listening }

// Close ends it. Questions that come later are not answered.
func (l *Listener) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed, l.queue, l.arrived = true, nil, nil
	l.mu.Unlock()
	l.Timers.Cancel(&l.timer)
}

// ChannelEvent implements resp.ChannelHandler. It is called on an event loop.
func (l *Listener) ChannelEvent(ev resp.ChannelEvent, message []byte, err error) {
	defer invariants.FailStop()
	switch ev {
	case resp.Message:
		l.take(message)
	case resp.Refused:
		if l.state.Swap(refused) != refused {
			l.Refused(err)
		}
	}
}

// take queues a question.
func (l *Listener) take(message []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.Clock.Stamp()
	if now.Sub(l.second) >= time.Second {
		l.second, l.inSecond = now, 0
	}
	l.inSecond++
	if l.closed || len(message) > maxQuestion || len(l.queue) == maxQueued || l.inSecond > maxRate {
		l.dropped++
		return
	}
	l.queue = append(l.queue, append([]byte(nil), message...))
	l.arrived = append(l.arrived, now)
	if !l.running {
		l.running = true
		l.Spawn(l.run)
	}
}

// run answers the questions that are queued.
func (l *Listener) run() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		message, arrived, dropped := l.queue[0], l.arrived[0], l.dropped
		l.queue, l.arrived = l.queue[1:], l.arrived[1:]
		l.mu.Unlock()
		q, err := parseQuestion(message)
		if err != nil {
			continue
		}
		within := min(time.Duration(q.Millis)*time.Millisecond, Patience)
		late := func() bool { return l.Clock.Stamp().Sub(arrived) > within || l.isClosed() }
		if late() {
			continue
		}
		if a := l.Answer(q, late); a != nil && !late() {
			a.Question, a.Dropped = q.ID, dropped
			l.Client.Submit(l.Client.Route(q.Reply), &publication{verb: l.Verb(), channel: q.Reply, message: a.Encode()})
		}
	}
}

func (l *Listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// publication is the command that publishes a message. A lane that is full refuses it: it never
// waits in front of a lock's command.
type publication struct {
	verb, channel string
	message       []byte
	result        *published    // nil: nobody wants to know
	done          chan struct{} // closed when there is a result
}

// published says how many have got the message, on the server that took it.
type published struct {
	receivers int64
	sent, now clock.Instant
	err       error
}

// AppendCommand implements resp.Request.
func (p *publication) AppendCommand(dst []byte, _ resp.ScriptForm) []byte {
	dst = wire.AppendArrayHeader(dst, 3)
	dst = wire.AppendBulk(wire.AppendBulk(dst, p.verb), p.channel)
	return wire.AppendBulkBytes(dst, p.message)
}

// Complete implements resp.Request.
func (p *publication) Complete(r resp.Reply) {
	if p.result != nil {
		*p.result = published{r.Value.Int, r.Sent, r.Now, r.Err}
		close(p.done)
	}
}
