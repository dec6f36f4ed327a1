package sim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// call is one call of a program that blocks, on a thread of its own.
type call struct {
	s      *Sim
	p      *process
	who    string
	began  clock.Instant
	ctx    context.Context
	barred bool // by a slot that moves
}

// errStopped is why contexts of programs end.
var errStopped = errors.New("sim: the program does not wait any longer")

// begin begins a call that blocks. Its context may end.
func (p *process) begin(who string) *call {
	s := p.sim
	p.calls++
	c := &call{s: s, p: p, who: who, began: s.now, ctx: context.Background()}
	if s.chance(4) {
		c.ctx = p.limit(s.between(0, 2*time.Second))
	}
	return c
}

// limit returns a context that ends after a while.
func (p *process) limit(d time.Duration) context.Context {
	ctx, cancel := context.WithCancelCause(p.sim.ctx)
	p.sim.after(d, p, func() { cancel(errStopped) })
	return ctx
}

// end checks what is true of each call: that it took no longer than that, and why it failed,
// if it did: because its context ended, or its time, or the engine.
func (c *call) end(err error, most time.Duration) {
	s := c.s
	c.p.calls--
	took := s.now.Sub(c.began)
	if took > most+settled && c.p.wakes < c.began && c.p.awake() {
		s.fail("%s: a call took %v, and no more than %v was to be", c.who, took, most)
	}
	switch {
	case errors.Is(err, errStopped) && c.ctx.Err() == nil:
		s.fail("%s: the context has not ended: %v", c.who, err)
	case errors.Is(err, engine.ErrClosed) && c.p.refuses == 0:
		s.fail("%s: the engine is not being closed: %v", c.who, err)
	case errors.Is(err, engine.ErrOutcomeUnknown) || errors.Is(err, engine.ErrUnavailable):
		if s.healthy() && c.began.Sub(s.quiet) > recovers && c.ctx.Err() == nil && c.p.refuses == 0 && !c.barred {
			s.fail("%s: nothing has gone wrong: %v", c.who, err)
		}
	}
}

// extend extends the lease of a hold, at random.
func (h *held) extend() {
	s, p := h.user.p.sim, h.user.p
	if h.over || p.refuses != 0 && s.chance(2) {
		return
	}
	d := s.between(margin+time.Millisecond, 2*s.lease)
	d += d / 50 // the drift of several clocks
	s.start(p, func() { h.extendBy(d, p.begin(h.user.name)) })
}

func (h *held) extendBy(d time.Duration, c *call) {
	s := c.s
	s.tell("%s extends %s by %v", h.user.name, h.names, d)
	failovers := s.failovers
	err := h.hold.Extend(c.ctx, d)
	s.tell("%s has extended %s: %v", h.user.name, h.names, err)
	c.barred = h.reads && s.barredSince(rw) < commandTimeout+settled // a reader has two keys
	c.end(err, commandTimeout+s.ackTimeout())
	ended := h.hold.Err()
	if ended != nil && len(h.names) == 1 && !h.quorum && !s.dictated && s.now.Sub(max(h.last, c.began)) > settled && c.p.wakes < c.began && c.p.awake() {
		s.fail("%s: %s has ended, and its Extend was told %v later", h.user.name, h.short(), s.now.Sub(max(h.last, c.began)))
	}
	var refused *resp.ServerError
	switch {
	case err == nil:
		if !h.leased() {
			s.fail("%s: Extend of %s succeeded, and it has no lease of its own", h.user.name, h.short())
		}
		if ended == nil && h.within == nil {
			h.extended(c.began.Add(d-margin-h.drift(d)), failovers)
		}
	case errors.Is(err, engine.ErrInvalid):
		if h.leased() {
			s.fail("%s: %s may be extended: %v", h.user.name, h.short(), err)
		}
	case errors.Is(err, engine.ErrNotHeld), errors.Is(err, engine.ErrLost):
		if ended == nil {
			s.fail("%s: %s has not ended: %v", h.user.name, h.short(), err)
		}
	case errors.Is(err, engine.ErrNotAcked):
		if !h.asksReplicas() {
			s.fail("%s: %s asked no replica: %v", h.user.name, h.short(), err)
		}
	case errors.Is(err, engine.ErrOutcomeUnknown):
		if c.ctx.Err() == nil && s.now.Sub(c.began) < commandTimeout {
			s.fail("%s: the Extend of %s had time still: %v", h.user.name, h.short(), err)
		}
	case errors.As(err, &refused):
	case h.quorum && ended == nil: // of too many servers, and it is held anyway
	default:
		s.fail("%s: Extend of %s says %v", h.user.name, h.short(), err)
	}
}

// asksReplicas reports whether it is acknowledged by replicas, or re-enters one that is.
func (h *held) asksReplicas() bool { return h.acked || h.within != nil && h.within.asksReplicas() }

// leased reports whether it has a lease of its own, which may be extended.
func (h *held) leased() bool { return h.fixed || h.within == nil && !h.watchdog }

// drift is by how much less than its lease a RedLock is certain.
func (h *held) drift(d time.Duration) time.Duration {
	if h.quorum {
		return d/100 + 2*time.Millisecond
	}
	return 0
}

// extended checks a hold whose Extend has succeeded: it is valid until then at least, and the
// server keeps it for longer, by the margin. (It counts in milliseconds.) A failover may have
// lost an earlier Extend, which its engine cannot know: then the server has what this one gave it.
func (h *held) extended(until clock.Instant, failovers int) {
	s := h.user.p.sim
	valid := h.hold.ValidUntil()
	if valid.Before(wallAt(until)) {
		s.fail("%s: %s was extended, and is valid for %v less", h.user.name, h.short(), wallAt(until).Sub(valid))
	}
	if h.quorum || h.robbed() || failovers != s.failovers {
		return
	}
	for i, name := range h.names {
		least := valid
		if _, is := s.shortened[h.owners[i]]; is {
			least = wallAt(until)
		}
		if v := s.server.Get(name); !s.server.Has(name, h.owners[i]) || wallAt(clock.Instant(v.Expire*1e6)).Before(least.Add(margin-time.Millisecond)) {
			s.fail("%s: %s was extended until %v, and the server has %q", h.user.name, h.short(), least.Sub(h.user.p.wall()), s.server.Record())
		}
	}
}

// ackTimeout is the default.
func (s *Sim) ackTimeout() time.Duration { return min(time.Second, s.lease/6) }

// inquire asks for the state of a lock, or takes it away from its holder.
func (u *user) inquire() {
	s, x := u.p.sim, u.p.sites[u.p.sim.random.IntN(len(u.p.sites))]
	name := s.nameOn(x.server)
	m := x.mutex(name)
	u.busy = true
	s.start(u.p, func() {
		if s.chance(3) && !x.forcing[name] {
			only := ""
			if owners := s.owners(name); len(owners) > 0 && s.chance(2) {
				only = owners[0]
			}
			if s.kindOf(name) == rw && s.chance(2) {
				m, only = x.engine.RWMutex(name).Reader(), ""
			}
			u.force(x, m, name, only)
		} else {
			u.state(x, m, name)
		}
		u.rest()
	})
}

func (u *user) state(x *site, m engine.Mutex, name string) {
	s, c := u.p.sim, u.p.begin(u.name)
	seen := s.observe(x.server, name)
	is, err := m.State(c.ctx)
	seen.note(s.now)
	s.observers = slices.DeleteFunc(s.observers, func(o *observer) bool { return o == seen })
	s.tell("%s: the state of %s is %+v, %v", u.name, name, is, err)
	c.end(err, commandTimeout)
	var refused *resp.ServerError
	switch {
	case err == nil:
		if !seen.had(is) {
			s.fail("%s: the state of %s was never %v, but %v", u.name, name, is, seen.all)
		}
		for _, one := range is.Holders {
			if mine := x.owns(one.ID); mine && !is.Mine {
				s.fail("%s: %s is of this engine: %v", u.name, name, is)
			}
		}
	case errors.Is(err, engine.ErrWrongType):
		if !seen.text() {
			s.fail("%s: %s was a lock all the time: %v", u.name, name, err)
		}
	case errors.As(err, &refused), errors.Is(err, errStopped), errors.Is(err, engine.ErrClosed):
	case errors.Is(err, engine.ErrUnavailable):
		if s.now.Sub(c.began) < commandTimeout {
			s.fail("%s: State had time still: %v", u.name, err)
		}
	default:
		s.fail("%s: State says %v", u.name, err)
	}
}

func (u *user) force(x *site, m engine.Mutex, name, only string) {
	s, c := u.p.sim, u.p.begin(u.name)
	x.forcing[name] = true
	x.forced[name] = forced{since: s.now, earlier: x.forced[name].left(s.now)}
	var options []engine.ForceOption
	if only != "" {
		options = append(options, engine.IfHolder(only))
	}
	s.tell("%s takes %s by force, %v", u.name, name, options)
	removed, err := m.ForceUnlock(c.ctx, options...)
	s.tell("%s has taken %s by force: %v, %v", u.name, name, removed, err)
	delete(x.forcing, name)
	c.barred = name == fair && s.barredSince(fair) < commandTimeout+settled
	c.end(err, commandTimeout)
	was := x.forced[name]
	var refused *resp.ServerError
	switch {
	case was.executed > 1+was.earlier:
		s.fail("%s: ForceUnlock of %s was executed %d times", u.name, name, was.executed)
	case err == nil:
		if was.earlier == 0 && (was.executed != 1 || removed != was.removed) {
			s.fail("%s: ForceUnlock of %s says %v, and did %v", u.name, name, removed, was)
		}
	case errors.Is(err, engine.ErrOutcomeUnknown):
		was.unknown = s.now
		x.forced[name] = was
	case errors.As(err, &refused), was.earlier > 0:
	case was.executed > 0:
		s.fail("%s: ForceUnlock of %s says %v, and was executed", u.name, name, err)
	case errors.Is(err, engine.ErrUnavailable), errors.Is(err, engine.ErrClosed), errors.Is(err, errStopped):
		was.never = true
		x.forced[name] = was
	default:
		s.fail("%s: ForceUnlock says %v", u.name, err)
	}
}

func takesByForce(words []string) bool {
	sent := model.BySHA[words[1]]
	return sent == script.Force || sent == script.FairForce || sent == script.RWForce
}

// forced is what became of a ForceUnlock on the server.
type forced struct {
	since    clock.Instant
	executed int
	removed  bool
	never    bool          // its caller was told that it was not sent
	unknown  clock.Instant // when its caller was told that the outcome is
	earlier  int           // calls that ended just when this began, and may be executed still
}

// left is the same for a call that begins now.
func (f forced) left(now clock.Instant) int {
	if f.unknown == now && f.executed == 0 {
		return f.earlier + 1
	}
	return 0
}

// noteForce notes the owners that lose a lock by a ForceUnlock, before it is executed.
func (s *Sim) noteForce(v *server, words []string) {
	if !takesByForce(words) {
		return
	}
	name, only := words[3], words[4]
	if model.BySHA[words[1]] == script.FairForce {
		only = words[6]
	}
	if h := v.Get(name); h != nil && !h.Text && (only == "" || v.Has(name, only)) && (s.kindOf(name) != rw || h.Fields["mode"] == words[5]) {
		s.noteRobbed(name, h)
	}
}

// noteForced notes that a command of the site that was sent then is executed, with that answer.
// It may be that of an earlier call.
func (x *site) noteForced(words []string, reply []byte, sent clock.Instant) {
	if !takesByForce(words) || reply[0] != ':' {
		return
	}
	was := x.forced[words[3]]
	if sent < was.since {
		return
	}
	if was.never {
		x.sim.fail("%s: ForceUnlock of %s was executed, and its caller was told that it was not sent", x.name, words[3])
	}
	x.forced[words[3]] = forced{since: was.since, executed: was.executed + 1, removed: string(reply) != ":0\r\n", earlier: was.earlier}
}

// observer sees what a server has for a name, while somebody asks for it.
type observer struct {
	v    *server
	name string
	all  []observed
}

// observed is what it had, from then until then.
type observed struct {
	fields      map[string]string
	expire      int64
	wrong       bool
	since, till clock.Instant
}

// note has all observers look. Several commands may be executed in one event.
func (s *Sim) note() {
	s.noteWriter()
	for _, o := range s.observers {
		o.note(s.now)
	}
	for _, o := range s.lookouts {
		o.note(s)
	}
}

func (s *Sim) observe(v *server, name string) *observer {
	o := &observer{v: v, name: name}
	s.observers = append(s.observers, o)
	o.note(s.now)
	return o
}

func (o *observer) note(now clock.Instant) {
	is := observed{since: now, till: now}
	if h := o.v.Get(o.name); h != nil {
		is.fields, is.expire, is.wrong = h.Fields, h.Expire, h.Text
	}
	if n := len(o.all); n > 0 {
		last := &o.all[n-1]
		last.till = now
		if maps.Equal(last.fields, is.fields) && last.expire == is.expire && last.wrong == is.wrong {
			return
		}
	}
	is.fields = maps.Clone(is.fields)
	o.all = append(o.all, is)
}

func (o *observer) text() bool {
	for _, was := range o.all {
		if was.wrong {
			return true
		}
	}
	return false
}

// had reports whether that was the state at one moment.
func (o *observer) had(is engine.State) bool {
	if is.Locked != (len(is.Holders) > 0) || is.Locked != (is.Mode != "") {
		return false
	}
	fields := make(map[string]string)
	if is.Mode == "read" || is.Mode == "write" {
		fields["mode"] = is.Mode
	}
	for _, one := range is.Holders {
		fields[one.ID] = strconv.Itoa(one.Count)
	}
	for _, was := range o.all {
		if was.wrong || !maps.Equal(was.fields, fields) {
			continue
		}
		if !is.Locked {
			return is.TTL == 0
		}
		at := clock.Instant((was.expire - is.TTL.Milliseconds()) * 1e6) // to a millisecond
		if at > was.since-1e6 && at <= was.till {
			return true
		}
	}
	return false
}
