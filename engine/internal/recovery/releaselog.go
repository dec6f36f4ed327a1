package recovery

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// releaseLog remembers the latest releases, by the server that answered them, because that
// server may be replaced before it has told its successor:
//
//	old primary                   new primary
//	acquire(id)   ------------>   acquire(id)
//	                              is promoted
//	release(id), answered
//	                              id stays there until its lease ends
//
// Then they are sent once more, see resentRelease. For a standalone server nothing is
// remembered, because nothing replaces it.
//
// Invariants:
//
//  1. A release is noted before anybody is told of it.
//  2. A release that is noted for a server that no longer serves the name is sent again at
//     once. One that was noted before the routes changed is seen by rerouted, which comes
//     after the change. So none is missed.
//  3. A record is in mu.servers, or belongs to rerouted.
type releaseLog struct {
	recovery *Recovery
	client   Client
	keep     time.Duration // 0: nothing is remembered
	mu       struct {
		sync.Mutex
		servers map[resp.ServerID]*record
	}
}

// record is what one server has released.
type record struct {
	memory *releaseLog
	server resp.ServerID
	ring
	timer wheel.Timer
}

func (m *releaseLog) init(v *Recovery) {
	m.recovery, m.client, m.keep = v, v.cfg.Client, v.cfg.Keep
	m.mu.servers = make(map[resp.ServerID]*record)
}

// ServerOf returns the server that a command of the route goes to now; none if it need
// not be known.
func (v *Recovery) ServerOf(route uint64) resp.ServerID {
	if v.released.keep == 0 {
		return 0
	}
	return v.released.client.ServerOf(route)
}

// Released is told that a server has answered the release of an owner of a kind, whose MinHold ends at
// end. Every release comes by here, before its caller is told. The caller holds the shard's
// lock.
func (v *Recovery) Released(r *lock.Entry, k kind.Kind, by lock.ServerID, id int64, at, end clock.Instant) {
	v.Note(resp.ServerID(by), r.Route, Release{Name: r.Name, ID: id, At: at, End: end, Kind: k})
}

// Note remembers a release that was sent to a server, and answered.
func (v *Recovery) Note(server resp.ServerID, route uint64, r Release) {
	m := &v.released
	if m.keep == 0 {
		return
	}
	m.mu.Lock()
	present := m.client.ServerOf(route) == server
	if present {
		m.recordLocked(server, r.At).push(&r, m.keep)
	}
	m.mu.Unlock()
	if !present {
		v.Resend([]Release{r}, 0)
	}
}

func (m *releaseLog) recordLocked(server resp.ServerID, now clock.Instant) *record {
	s := m.mu.servers[server]
	if s == nil {
		s = &record{memory: m, server: server}
		s.timer.Init(s)
		m.mu.servers[server] = s
		m.recovery.cfg.Wheel.Schedule(&s.timer, now.Add(m.keep))
	}
	return s
}

// Fire implements wheel.Task: see forgetAt.
func (s *record) Fire(_ *wheel.Timer, now clock.Instant) {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.servers[s.server] != s {
		return
	}
	newest := s.newest()
	up := m.client.LaneOf(m.client.Route(newest.Name)).Up()
	if at := forgetAt(newest.At, m.keep, up, now); at != 0 {
		m.recovery.cfg.Wheel.Schedule(&s.timer, at)
	} else {
		delete(m.mu.servers, s.server)
	}
}

// rerouted is called when names have come to other servers: their releases are sent to
// those.
func (m *releaseLog) rerouted() {
	m.mu.Lock()
	all := m.mu.servers
	m.mu.servers = make(map[resp.ServerID]*record)
	m.mu.Unlock()
	for _, server := range slices.Sorted(maps.Keys(all)) {
		s := all[server]
		m.recovery.cfg.Wheel.Cancel(&s.timer)
		newest := s.newest().At
		due := s.takeOut(m.keep, func(r *Release) bool {
			return m.client.ServerOf(m.client.Route(r.Name)) != server
		})
		m.mu.Lock()
		if len(s.pages) > 0 {
			m.recordLocked(server, newest).prepend(&s.ring)
		}
		m.mu.Unlock()
		m.recovery.Resend(due, 0)
	}
}
