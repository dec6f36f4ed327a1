package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// commandTimeout is the silence with a command out that costs a connection.
const commandTimeout = 3 * time.Second

// conn is a connection of a site to its server, and its successors: commands go out
// in order, replies come in the same order.
//
//	submitted --latency--> executed --latency--> answered
//	                |                    |
//	               cut                  cut: outcome unknown
//	                +--> not sent, or
//	                +--> outcome unknown: never executed, or late
type conn struct {
	p      *site
	server *server
	role   resp.Role
	lane   lane // of a resp.RoleLane

	up       bool
	lost     clock.Instant // since then it is not up
	life     int           // which connection; those of earlier ones are over
	out      []*flight
	inbox    []*flight     // of these, what the server has before it
	lastOut  clock.Instant // nothing arrives at the server before
	lastIn   clock.Instant // nothing arrives here before
	heard    clock.Instant
	restores int
	breaks   []func(error) // end the commands that are no scripts, with the connection
}

// flight is a command without an answer.
type flight struct {
	request  resp.Request
	command  []byte
	sent     clock.Instant
	since    clock.Instant // when it was sent for the first time
	asking   bool          // it was sent to where its slot is moving
	hops     int           // how often it was sent on
	to       *server       // where the reply sends it on
	executed bool
	reply    []byte
}

var errCut = errors.New("sim: the connection was cut")

// submit takes a request, as a lane does.
func (c *conn) submit(r resp.Request) {
	s := c.p.sim
	switch patient, ok := r.(resp.PatientRequest); {
	case c.p.closed:
		r.Complete(resp.Reply{Err: resp.NotSent(resp.ErrClosed), Now: s.now})
	case !c.up:
		r.Complete(resp.Reply{Err: resp.NotSent(resp.ErrDown), Now: s.now})
	case s.inspected && c.looks(r):
	case s.mild() || !s.chance(50):
		c.send(r, s.now, 0, false)
	case !ok || patient.Priority() == resp.PriorityNoWait:
		s.tell("%s %s is full", c.p.name, c.role)
		r.Complete(resp.Reply{Err: resp.NotSent(resp.ErrLaneFull), Now: s.now})
	default:
		s.tell("%s %s is full, and lets a command wait", c.p.name, c.role)
		life := c.life
		s.after(s.between(0, 300*time.Millisecond), c.p.process, func() {
			switch {
			case c.p.closed:
				r.Complete(resp.Reply{Err: resp.NotSent(resp.ErrClosed), Now: s.now})
			case c.life != life || !c.up:
				r.Complete(resp.Reply{Err: resp.NotSent(errCut), Now: s.now})
			case !patient.Wanted():
				r.Complete(resp.Reply{Err: resp.NotSent(resp.ErrUnwanted), Now: s.now})
			default:
				c.send(r, s.now, 0, false)
			}
		})
	}
}

func (c *conn) send(r resp.Request, since clock.Instant, hops int, asking bool) {
	s := c.p.sim
	f := &flight{request: r, since: since, hops: hops, asking: asking, sent: s.now, command: r.AppendCommand(nil, resp.EvalSHA)}
	s.noteAsked(c.p, f)
	s.turns.sends(f.command)
	c.out = append(c.out, f)
	c.lastOut = max(c.lastOut, s.now.Add(s.latency()))
	life := c.life
	s.at(c.lastOut, nil, func() { c.arrive(f, life) })
	if !s.mild() && s.chance(60) { // while it is under way
		s.after(s.between(0, c.lastOut.Sub(s.now)), c.p.process, func() {
			if c.life == life {
				c.cut()
			}
		})
	}
	s.after(commandTimeout, c.p.process, func() {
		// Anything that was heard since then shows that the server lives.
		if c.life == life && slices.Contains(c.out, f) && s.now.Sub(c.heard) >= commandTimeout {
			s.tell("%s %s: no answer in time", c.p.name, c.role)
			c.cut()
		}
	})
}

// arrive has the server execute a command.
func (c *conn) arrive(f *flight, life int) {
	if c.life != life {
		return // cut has decided what becomes of it
	}
	c.inbox = append(c.inbox, f)
	if len(c.inbox) == 1 {
		c.read(life)
	}
}

// read has the server execute what has arrived, unless it hangs.
func (c *conn) read(life int) {
	s := c.p.sim
	if c.life != life {
		return
	}
	if s.now < c.server.hangs {
		s.at(c.server.hangs, nil, func() { c.read(life) })
		return
	}
	for _, f := range c.inbox {
		f.executed = true
		f.reply = c.execute(f, "")
		c.lastIn = max(c.lastIn, s.now.Add(s.latency()))
		s.at(c.lastIn, c.p.process, func() {
			if c.life == life {
				c.answer(f)
			}
		})
	}
	c.inbox = nil
}

func (c *conn) answer(f *flight) {
	s := c.p.sim
	c.heard = s.now
	if c.out[0] != f {
		panic("BUG: sim: answers are out of order")
	}
	c.out = c.out[1:]
	v, _, err := wire.Decode(f.reply)
	if err != nil {
		panic("BUG: sim: " + err.Error())
	}
	reply := resp.Reply{Value: v, Sent: f.sent, Now: s.now, Moving: f.asking}
	if v.Kind == wire.KindError {
		e := wire.NewServerError(v.Bytes)
		if c.redirect(f, e) {
			return
		}
		if e.Code == "ERR" && (releasedBy(model.Words(f.command)) != nil || isCounterCall(f.command)) {
			c.p.denied = s.now
		}
		reply.Value, reply.Err, reply.Moving = resp.Value{}, e, f.asking || e.Code == "TRYAGAIN"
	}
	if d, ok := f.request.(resp.DurableRequest); ok && d.Wants() != 0 && reply.Err == nil && d.NeedsAck(v) {
		reply.Ack = s.acknowledge(c.server, d)
	}
	if reply.Err == nil {
		s.noteAnswered(c.p, f)
	} else {
		s.noteUnanswered(c.p, f, false)
	}
	f.request.Complete(reply)
}

// cut ends the connection. Of what the server has not executed yet, it may have the
// first few commands, and execute them later, as they lie in a buffer.
func (c *conn) cut() {
	s := c.p.sim
	if !c.up {
		return
	}
	s.tell("%s %s is cut, %d out", c.p.name, c.role, len(c.out))
	c.end(errCut)
	c.p.events.Connection(resp.State{Role: c.role, Err: errCut}, c.lane)
	s.after(s.between(5*time.Millisecond, 4*time.Second)+c.p.away, c.p.process, c.connect)
}

// end ends the connection, and with that error what is out on it.
func (c *conn) end(why error) {
	s := c.p.sim
	flights := c.out
	c.up, c.lost, c.out, c.inbox = false, c.p.sim.now, nil, nil
	c.life++
	breaks := c.breaks
	c.breaks = nil
	for _, end := range breaks {
		end(why)
	}
	waiting := 0
	for _, f := range flights {
		if !f.executed {
			waiting++
		}
	}
	written := s.draw(waiting + 1)
	late := s.draw(written + 1)
	if c.p.sim.dictated {
		written, late = waiting-c.p.unsent, c.p.late
	}
	at, epoch := s.now, c.server.epochOf()
	for _, f := range flights {
		err, lost := resp.OutcomeUnknown(why), true
		if f.executed && !s.mild() && s.chance(8) { // perhaps behind a release
			s.overwrite(c.server, model.Words(f.command)[3])
		}
		if !f.executed {
			switch {
			case late > 0:
				at = at.Add(s.between(0, 12*time.Second)).Add(c.p.lateBy)
				soon := s.now.Add(900 * time.Millisecond)
				s.at(at, nil, func() {
					if epoch != c.server.epochOf() {
						return
					}
					s.noteLate(model.Words(f.command), s.now <= soon)
					c.execute(f, ", late")
				})
			case written <= 0:
				err, lost = resp.NotSent(why), false
			}
			late--
			written--
		}
		s.noteUnanswered(c.p, f, lost)
		if lost {
			s.turns.lose(takenBy(model.Words(f.command)))
		}
		if !c.p.dead {
			f.request.Complete(resp.Reply{Err: err, Sent: f.sent, Now: s.now, Moving: f.asking})
		}
	}
}

func (c *conn) connect() {
	s := c.p.sim
	if c.p.closed {
		return
	}
	if again, ok := c.p.mayConnect(c.server); !ok {
		s.at(again, c.p.process, c.connect)
		return
	}
	c.up, c.heard = true, s.now
	c.lastOut, c.lastIn = s.now, s.now
	c.restores++
	c.p.events.Connection(resp.State{Role: c.role, Up: true, Reconnects: c.restores}, c.lane)
}

// slowest is the longest latency.
const slowest = 2 * time.Second

// latency is that of one way.
func (s *Sim) latency() time.Duration {
	switch {
	case s.dictated:
		return time.Millisecond
	case s.mild() || !s.chance(100):
		return s.between(20*time.Microsecond, 2*time.Millisecond)
	default:
		return s.between(time.Millisecond, slowest)
	}
}
