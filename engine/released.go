package engine

import (
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

const (
	// rememberFor is how long a release is remembered while its server can be reached. In a
	// failover on command the old primary goes on until the sentinels have all other
	// replicas follow the new one, about a second for each.
	rememberFor = 10 * time.Second
	// rememberMost bounds what is remembered of one server, give or take a page.
	rememberMost = 1 << 16
)

// released remembers the latest releases, by the server that answered them, because that
// server may be replaced before it has told its successor:
//
//	old primary                   new primary
//	acquire(id)   ------------>   acquire(id)
//	                              is promoted
//	release(id), answered
//	                              id stays there until its lease ends
//
// Then they are sent once more, see releaseAgain. For a standalone server nothing is
// remembered, because nothing replaces it.
//
// Invariants:
//
//  1. A release is noted before anybody is told of it.
//  2. A release that is noted for a server that no longer serves the name is sent again at
//     once. One that was noted before the routes changed is seen by rerouted, which comes
//     after the change. So none is missed.
//  3. A serverReleases is in mu.servers, or belongs to rerouted.
//
// Lock order: a shard's lock, then mu, then the wheel's.
type released struct {
	eng  *Engine
	on   bool
	keep time.Duration // rememberFor, but in tests
	mu   struct {
		sync.Mutex
		servers map[resp.ServerID]*serverReleases
	}
}

// pastRelease is a release that a server has answered.
type pastRelease struct {
	name string
	id   int64
	at   clock.Instant // of the answer
	end  clock.Instant // of its MinHold; 0 without one
	kind kind.Kind
}

// serverReleases are those of one server, about in the order of their answers.
type serverReleases struct {
	released    *released
	server      resp.ServerID
	first, last *releasePage // none of them is empty
	pages       int
	spare       *releasePage
	timer       wheel.Timer
}

type releasePage struct {
	next *releasePage
	n    int
	list [256]pastRelease
}

func (p *releasePage) newest() *pastRelease { return &p.list[p.n-1] }

func (v *released) init(e *Engine) {
	v.eng, v.keep = e, rememberFor
	v.on = topologies[e.cfg.Topology] != resp.Standalone
	v.mu.servers = make(map[resp.ServerID]*serverReleases)
}

// serverOf returns the server that a command of the route goes to now; none if it need
// not be known.
func (v *released) serverOf(route uint64) resp.ServerID {
	if !v.on {
		return 0
	}
	return v.eng.table.Client.ServerOf(route)
}

// note remembers a release that was sent to a server, and answered.
func (v *released) note(server resp.ServerID, route uint64, r pastRelease) {
	if !v.on {
		return
	}
	v.mu.Lock()
	present := v.eng.table.Client.ServerOf(route) == server
	if present {
		v.recordLocked(server, r.at).push(r)
	}
	v.mu.Unlock()
	if !present {
		v.eng.recovery.addReleases([]pastRelease{r}, 0)
	}
}

func (v *released) recordLocked(server resp.ServerID, now clock.Instant) *serverReleases {
	s := v.mu.servers[server]
	if s == nil {
		s = &serverReleases{released: v, server: server}
		s.timer.Init(s)
		v.mu.servers[server] = s
		v.eng.table.Timers.Schedule(&s.timer, now.Add(v.keep))
	}
	return s
}

func (s *serverReleases) push(r pastRelease) {
	if s.last == nil || s.last.n == len(s.last.list) {
		s.turn(r.at)
	}
	s.last.list[s.last.n] = r
	s.last.n++
}

// turn begins a page, and drops the oldest ones if they are too old or too many.
func (s *serverReleases) turn(now clock.Instant) {
	for s.first != nil && (now.Sub(s.first.newest().at) > s.released.keep || s.pages*len(s.first.list) >= rememberMost) {
		s.spare, s.first = s.first, s.first.next
		s.pages--
	}
	page := s.spare
	s.spare = nil
	if page == nil {
		page = new(releasePage)
	}
	*page = releasePage{}
	if s.first == nil {
		s.first = page
	} else {
		s.last.next = page
	}
	s.last = page
	s.pages++
}

// Fire implements wheel.Task: nothing need be remembered any more if the server has been
// there, and has released nothing, for so long.
func (s *serverReleases) Fire(_ *wheel.Timer, now clock.Instant) {
	v, client := s.released, s.released.eng.table.Client
	v.mu.Lock()
	mine := v.mu.servers[s.server] == s
	var newest pastRelease
	if mine {
		newest = *s.last.newest()
	}
	v.mu.Unlock()
	if !mine {
		return
	}
	up := client.LaneOf(client.Route(newest.name)).Up()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.servers[s.server] != s {
		return
	}
	at := s.last.newest().at.Add(v.keep)
	if up && at <= now {
		delete(v.mu.servers, s.server)
		return
	}
	v.eng.table.Timers.Schedule(&s.timer, max(at, now.Add(time.Second)))
}

// rerouted is called when names have come to other servers: their releases are sent to
// those.
func (v *released) rerouted() {
	v.mu.Lock()
	all := v.mu.servers
	v.mu.servers = make(map[resp.ServerID]*serverReleases)
	v.mu.Unlock()
	for server, s := range all {
		v.eng.table.Timers.Cancel(&s.timer)
		newest := s.last.newest().at
		moved := s.takeOut(func(r *pastRelease) bool {
			return v.eng.table.Client.ServerOf(v.eng.table.Client.Route(r.name)) != server
		})
		v.mu.Lock()
		if s.first != nil {
			v.recordLocked(server, newest).prepend(s)
		}
		v.mu.Unlock()
		v.eng.recovery.addReleases(moved, 0)
	}
}

// takeOut removes what has moved, and returns of that what is not too old.
func (s *serverReleases) takeOut(moved func(*pastRelease) bool) (list []pastRelease) {
	since := s.last.newest().at.Add(-s.released.keep)
	pages := s.first
	s.first, s.last, s.pages = nil, nil, 0
	for page := pages; page != nil; {
		next := page.next
		n := 0
		for i := range page.list[:page.n] {
			r := &page.list[i]
			switch {
			case !moved(r):
				page.list[n] = *r
				n++
			case r.at >= since:
				list = append(list, *r)
			}
		}
		clear(page.list[n:])
		if page.n, page.next = n, nil; n > 0 {
			if s.first == nil {
				s.first = page
			} else {
				s.last.next = page
			}
			s.last = page
			s.pages++
		}
		page = next
	}
	return list
}

// prepend puts older ones in front, which are at least one.
func (s *serverReleases) prepend(older *serverReleases) {
	if older.last.next = s.first; s.first == nil {
		s.last = older.last
	}
	s.first = older.first
	s.pages += older.pages
}
