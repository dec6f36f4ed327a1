package sim

import (
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
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
	switch s.random.IntN(10) {
	case 0, 1:
		p.conns()[s.random.IntN(3)].cut()
	case 2:
		for _, c := range p.conns() {
			c.cut()
		}
		p.pubsub.cut()
	case 3:
		p.pubsub.cut()
	case 4:
		p.wakes = max(p.wakes, s.now.Add(s.between(0, 20*time.Second))) // never sooner: the order of its events would change
		s.tell("%s is paused for %v", p.name, p.wakes.Sub(s.now))
	case 5:
		s.hangs = max(s.hangs, s.now.Add(s.between(0, 5*time.Second)))
		s.tell("the server hangs for %v", s.hangs.Sub(s.now))
	case 6:
		s.refuses = refusals[s.random.IntN(len(refusals))]
		s.refusesUntil = s.now.Add(s.between(0, 3*time.Second))
		s.tell("the server refuses with %q for %v", s.refuses, s.refusesUntil.Sub(s.now))
	case 7:
		name := names[s.random.IntN(len(names))]
		s.rob(name, s.chance(2))
		if s.chance(4) && s.server.get(name) == nil {
			s.tell("%s is a string for a while", name)
			s.server.keys[name] = &hash{text: true}
			s.server.expireIn(name, int64(s.between(time.Millisecond, 3*time.Second)/time.Millisecond)+1)
		}
	case 8:
		if s.chance(8) {
			p.kill()
			s.newProcess()
		}
	}
}

// refusals are errors after which nothing has been executed.
var refusals = []string{
	"LOADING Redis is loading the dataset in memory",
	"BUSY Redis is busy running a script",
	"CLUSTERDOWN The cluster is down",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"OOM command not allowed when used memory > 'maxmemory'",
	"READONLY You can't write against a read only replica.",
	"ERR something that nobody expects",
}

// execute has the server execute a command, or refuse it.
func (s *Sim) execute(from string, command []byte) []byte {
	if s.now < s.refusesUntil {
		if s.refuses[:3] == "ERR" {
			if s.chance(2) { // an error does not say what was done before it
				s.server.execute(command, nil)
			}
			s.noteDenied(split(command))
		}
		return []byte("-" + s.refuses + "\r\n")
	}
	reply := s.server.execute(command, nil)
	words := split(command)
	s.tell("server: %s sends %s %.90q -> %q", from, bySHA[words[1]].Name, strings.Join(words[3:], " "), reply)
	return reply
}

// noteDenied notes owners whose release was denied: that is not asked for again, and the
// lock ends with its lease.
func (s *Sim) noteDenied(words []string) {
	if k := bySHA[words[1]]; k == script.Release || k == script.Retire {
		s.denied[words[4]] = true
	}
}

// noteLate notes owners whose acquire may be executed after the second release of their
// debt: the third follows after a lease.
func (s *Sim) noteLate(words []string) {
	if bySHA[words[1]] == script.Acquire {
		s.denied[words[5]] = true
	}
}

// rob takes a lock away from those who have it, with an announcement or without.
func (s *Sim) rob(name string, silently bool) {
	h := s.server.get(name)
	if h == nil {
		return
	}
	s.tell("%s is robbed, silently %v", name, silently)
	for owner := range h.fields {
		s.robbed[owner] = s.now
	}
	left := time.Duration(s.server.left(name)) * time.Millisecond
	delete(s.server.keys, name)
	if silently { // those who wait know of the expiry only
		s.excused[name] = max(s.excused[name], s.now.Add(left))
	} else {
		s.published("redisson_lock__channel:{" + name + "}")
	}
}

func (s *Sim) published(channel string) {
	s.announced[strings.TrimSuffix(strings.TrimPrefix(channel, "redisson_lock__channel:{"), "}")] = s.now
	for _, p := range s.processes {
		if !p.dead {
			p.pubsub.published(channel)
		}
	}
}

// acknowledge is what replicas say of a write.
func (s *Sim) acknowledge(d resp.DurableRequest) *resp.Ack {
	wanted := max(1, int(d.Wants()))
	acked := wanted
	if !s.mild() && s.chance(5) {
		acked--
	}
	return &resp.Ack{Acked: acked, Wanted: wanted}
}

// rival is a client of another kind: it takes locks that are free, for a while, and
// announces their release, unless it has died.
func (s *Sim) rivals() {
	if s.calm {
		return
	}
	s.after(s.between(0, 5*time.Second), nil, s.rivals)
	name := names[s.random.IntN(len(names))]
	if s.server.get(name) != nil {
		return
	}
	s.tell("a rival has %s", name)
	s.server.make(name).fields["rival:1"] = "1"
	s.server.expireIn(name, int64(s.between(time.Millisecond, 10*time.Second)/time.Millisecond)+1)
	if s.chance(4) {
		return // it dies
	}
	s.after(s.between(0, 10*time.Second), nil, func() {
		if s.server.remove(name, "rival:1") {
			s.published("redisson_lock__channel:{" + name + "}")
		}
	})
}
