package sim

import (
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/resp"
)

// faults are what goes wrong, every now and then, until the world is calm.
func (s *Sim) faults() {
	if s.calm {
		return
	}
	s.after(s.between(0, 4*time.Second), nil, s.faults)
	if s.lull {
		return
	}
	p := s.processes[s.random.IntN(len(s.processes))]
	if p.dead {
		return
	}
	x := p.sites[s.random.IntN(len(p.sites))]
	n := x.nodes[s.random.IntN(len(x.nodes))]
	v := n.server
	switch s.random.IntN(12) {
	case 0, 1:
		x.conns()[s.random.IntN(3*len(x.nodes))].cut()
	case 2:
		x.cut()
	case 3:
		n.pubsub.cut()
	case 4:
		p.wakes = max(p.wakes, s.now.Add(s.between(0, 20*time.Second))) // never sooner: the order of its events would change
		s.tell("%s is paused for %v", p.name, p.wakes.Sub(s.now))
	case 5:
		v.hangs = max(v.hangs, s.now.Add(s.between(0, 5*time.Second)))
		s.tell("%s hangs for %v", v.name, v.hangs.Sub(s.now))
	case 6:
		s.refuse(v)
	case 7:
		name := s.nameOn(v)
		s.rob(v, name, s.chance(2))
		if s.chance(4) {
			s.overwrite(v, name)
		}
	case 8:
		if s.chance(8) {
			p.kill()
			s.newProcess()
		}
	case 9:
		if v.replica != nil && s.chance(2) {
			s.failover(v)
		}
	case 11: // more often than locks: a release may be in doubt
		for range 2 {
			s.overwrite(v, s.nameOn(v))
		}
	case 10: // it comes back with its data
		v.down = max(v.down, s.now.Add(s.between(0, 20*time.Second)))
		s.tell("%s is down for %v", v.name, v.down.Sub(s.now))
		for _, p := range s.processes {
			for _, x := range p.sites {
				for _, n := range x.nodes {
					if n.server == v && !p.dead {
						n.cut()
					}
				}
			}
		}
	}
}

// overwrite puts something that is no lock in the place of a lock that is free.
func (s *Sim) overwrite(v *server, name string) {
	if v.Get(name) != nil || name == tallied { // what was given back would be lost
		return
	}
	s.tell("%s is a string for a while", name)
	v.Keys[name] = &model.Hash{Text: true}
	v.ExpireIn(name, int64(s.between(time.Millisecond, 3*time.Second)/time.Millisecond)+1)
}

// refuse has a server refuse everything for a while.
func (s *Sim) refuse(v *server) {
	v.refuses = refusals[s.random.IntN(len(refusals))]
	v.refusesUntil = s.now.Add(s.between(0, 3*time.Second))
	s.tell("%s refuses with %q for %v", v.name, v.refuses, v.refusesUntil.Sub(s.now))
}

// cut cuts all connections.
func (x *site) cut() {
	for _, n := range x.nodes {
		n.cut()
	}
}

func (n *node) cut() {
	for _, c := range []*conn{n.lanes[0], n.lanes[1], n.renewal} {
		c.cut()
	}
	n.pubsub.cut()
}

// nameOn draws a name that a server has.
func (s *Sim) nameOn(v *server) string {
	switch {
	case v != s.server && s.cluster == nil:
		return quorum
	case len(s.servers) > 1 && s.chance(4):
		return quorum
	}
	return names[s.random.IntN(len(names))]
}

// Refusals of what writes. Who only looks is answered.
const (
	noMemory   = "OOM command not allowed when used memory > 'maxmemory'"
	noReplicas = "NOREPLICAS Not enough good replicas to write."
)

// refusals are errors after which nothing has been executed.
var refusals = []string{
	"LOADING Redis is loading the dataset in memory",
	"BUSY Redis is busy running a script",
	"CLUSTERDOWN The cluster is down",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	noMemory,
	noReplicas,
	"READONLY You can't write against a read only replica.",
	"ERR something that nobody expects",
}

// execute has the server execute a command of the site, or refuse it; late, if its connection
// has ended meanwhile.
func (c *conn) execute(f *flight, late string) []byte {
	command := f.command
	x, s, v := c.p, c.p.sim, c.server
	if s.now < v.refusesUntil && !v.answers(command) {
		if v.refuses[:3] == "ERR" {
			if s.chance(2) { // an error does not say what was done before it
				s.noteForce(v, model.Words(command))
				if !isCounterCall(command) { // that is executed as a whole
					x.notePermits(model.Words(command), v.Execute(command, nil))
				}
			}
			s.noteDenied(model.Words(command))
			s.noteUncounted(x, model.Words(command))
		}
		return []byte("-" + v.refuses + "\r\n")
	}
	words := model.Words(command)
	if s.cluster != nil {
		if reply, to := s.cluster.refuse(v, words, f.asking); reply != nil {
			f.to = to
			s.tell("%s: %s sends %s %q -> %q", v.name, x.name+late, model.BySHA[words[1]].Name, words[3], reply)
			return reply
		}
	}
	s.noteForce(v, words)
	reply := v.Execute(command, nil)
	if strings.HasPrefix(string(reply), "-"+model.WrongType) {
		s.noteDenied(words) // who leaves the queue of a fair lock stays in it
	}
	x.noteForced(words, reply, f.since)
	x.notePermits(words, reply)
	s.noteTurn(words, reply)
	x.notePoll(words)
	s.note()
	s.tell("%s: %s sends %s %.200q -> %q", v.name, x.name+late, model.BySHA[words[1]].Name, strings.Join(words[3:], " "), reply)
	return reply
}

// noteDenied notes owners whose release was denied: that is not asked for again, and the
// lock ends with its lease. A place in the queue stays, too, until somebody behind it looks.
func (s *Sim) noteDenied(words []string) {
	if model.BySHA[words[1]] == script.Withdraw {
		name := strings.TrimSuffix(strings.TrimPrefix(words[3], script.WaitersPrefix+":{"), "}")
		s.latePlaces[words[firstArg(words)]+" "+name] = true
	}
	for _, owner := range releasedBy(words) {
		s.denied[owner] = s.now
	}
}

// releasedBy are the owners that a command releases.
func releasedBy(words []string) []string {
	switch model.BySHA[words[1]] {
	case script.Release, script.Retire, script.WriteRetire:
		return words[4:5]
	case script.PermitFree:
		return words[7:]
	case script.FairRelease:
		return words[6:7]
	case script.RWRelease:
		if words[5] == "0" {
			return words[4:5]
		}
	case script.Several:
		return words[4+firstArg(words):]
	}
	return nil
}

// firstArg is where the arguments of a command begin.
func firstArg(words []string) int { return 3 + int(model.Number(words[2])) }

// takenBy is the owner that a command acquires for, "" if it does not.
func takenBy(words []string) string {
	switch model.BySHA[words[1]] {
	case script.Acquire, script.WriteAcquire:
		return words[5]
	case script.PermitTake:
		return words[8]
	case script.Fenced, script.Fair, script.ReadAcquire:
		return words[6]
	case script.Join:
		return words[firstArg(words)]
	case script.Several:
		return words[3+firstArg(words)]
	}
	return ""
}

// noteLate notes owners whose acquire is executed after its connection has ended. Unless that
// is soon, it may come after the second release of their compensation: the third follows after a
// lease.
func (s *Sim) noteLate(words []string, soon bool) {
	owner := takenBy(words)
	if owner == "" {
		return
	}
	s.late[owner] = true
	if model.BySHA[words[1]] == script.Join {
		engine, _, _ := strings.Cut(owner, ":")
		s.latePlaces[engine+" "+words[3]] = true
	}
	if !soon {
		s.denied[owner] = s.now
	}
}

// rob takes a lock away from its owner, with an announcement or without.
func (s *Sim) rob(v *server, name string, silently bool) {
	h := v.Get(name)
	if h == nil {
		return
	}
	s.tell("%s is robbed, silently %v", name, silently)
	s.noteRobbed(name, h)
	left := time.Duration(v.Left(name)) * time.Millisecond
	at := s.keeps(v, name)
	delete(v.Keys, name)
	if silently || name == fair { // waiters ask at the expiry, or after their longest sleep; of a fair lock each has a channel of its own
		s.excused[name] = max(s.excused[name], s.now.Add(min(left, lock.LongestSleep)))
	} else {
		s.published(at, s.channelOf(name), s.verb())
	}
}

// verb is how others announce the end of a lock.
func (s *Sim) verb() string {
	if s.cluster != nil && s.cluster.sharded {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// noteRobbed notes who is about to lose a lock.
func (s *Sim) noteRobbed(name string, h *model.Hash) {
	// Somebody who begins to wait behind the hold, after the message, looks at it by then.
	s.excused[name] = max(s.excused[name], s.now.Add(lock.LongestSleep))
	if name == rw && h.Fields["mode"] == "write" {
		s.reading.removed = s.now
	}
	for owner := range h.Fields {
		s.robbed[owner] = s.now
		if name == quorum {
			s.robbedVotes = append(s.robbedVotes, owner)
		}
	}
}

// published sends the message of a client that wakes one waiter, or opens a latch.
func (s *Sim) published(v *server, channel, verb string) (heard int) {
	return s.say(v, channel, verb, "0")
}

func (s *Sim) say(v *server, channel, verb, message string) (heard int) {
	name := nameOf(channel)
	if name == latch && message == "0" {
		s.opened()
	}
	if c := s.cluster; c != nil && c.sharded && c.slots[resp.SlotOf(name)].at != v {
		s.unheard(name)
	} else if name == fair || strings.HasSuffix(channel, "}") { // else one engine is called
		s.announced[name] = s.now
	}
	for _, p := range s.processes {
		for _, x := range p.sites {
			for _, n := range x.nodes {
				if !p.dead && (n.server == v && s.cluster == nil || s.cluster != nil && s.cluster.hears(v, n.server, verb)) {
					heard += n.pubsub.published(channel, message)
				}
			}
		}
	}
	if heard > 0 && (name != fair || strings.HasSuffix(channel, ":"+v.First(fair))) { // whose turn it is
		s.heard[name] = s.now
	}
	return heard
}

// acknowledge is what replicas say of a write.
func (s *Sim) acknowledge(v *server, d resp.DurableRequest) *resp.Ack {
	wanted := max(1, int(d.Wants()))
	acked := wanted
	if !s.mild() && s.chance(5) {
		acked--
	} else {
		v.replicate()
	}
	return &resp.Ack{Acked: acked, Wanted: wanted}
}

// rivals has a client of another kind take locks that are free, for a while. It
// announces their release, unless it has died.
func (s *Sim) rivals() {
	if s.calm {
		return
	}
	s.after(s.between(0, 5*time.Second), nil, s.rivals)
	v := s.servers[s.random.IntN(len(s.servers))]
	name := s.nameOn(v)
	if v.Get(name) != nil {
		return
	}
	s.tell("a rival has %s", name)
	v.Make(name).Fields["rival:1"] = "1"
	if s.kindOf(name) == rw {
		v.Make(name).Fields = map[string]string{"mode": "write", "rival:1:write": "1"}
	}
	v.ExpireIn(name, int64(s.between(time.Millisecond, 10*time.Second)/time.Millisecond)+1)
	if s.chance(4) {
		return // it dies
	}
	s.after(s.between(0, 10*time.Second), nil, func() {
		at, left := s.keeps(v, name), time.Duration(max(v.Left(name), 0))*time.Millisecond
		if gone := v.Remove(name, "rival:1"); gone || v.Remove(name, "rival:1:write") {
			v.Remove(name, "mode")
			if s.published(at, s.channelOf(name), s.verb()); name == fair {
				s.excused[name] = max(s.excused[name], s.now.Add(min(left, lock.LongestSleep)))
			}
		}
	})
}

// isCounterCall reports whether a command is a call of that script.
func isCounterCall(command []byte) bool { return model.Words(command)[1] == script.Counter.SHA }
