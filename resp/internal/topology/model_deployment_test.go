package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// deployment is a model of servers that are promoted by hand, as Redis behaves: replication IDs,
// lists that are out of date for a while after a partition, links that notice late. Clients
// look every second, unless they are suspended. Each server has a name in the configuration, and an address that it
// announces, at which there may be itself, nobody, or, behind NAT, somebody else's server.
type deployment struct {
	rng     *rand.Rand
	now     clock.Instant
	servers []*modelServer
	nat     string
	ids     int
	cut     map[[2]int]bool // pairs of servers that cannot reach each other
	led     []int           // the server that a name leads to
	moved   bool            // some name leads to another server than it did
	bare    bool            // the servers tell no replication IDs
	log     []string
}

type modelServer struct {
	up, primary, busy bool
	id, before        string
	master            int // of a replica
	linked            bool
	lastData          clock.Instant         // from the primary
	acked             map[int]clock.Instant // of each server on its list: the last acknowledgement
	followed          []int                 // by how many, in each second
	started           clock.Instant         // when it was last started; 0: it has been there all the time
}

func (w *deployment) Now() clock.Instant   { return w.now }
func (w *deployment) Stamp() clock.Instant { return w.now }
func (w *deployment) Wall() time.Time      { return time.Unix(0, int64(w.now)) }

func name(i int) string      { return fmt.Sprintf("s%d:1", i) }
func announced(i int) string { return fmt.Sprintf("10.0.0.%d:1", i) }

const stranger = "stranger"

func (w *deployment) newID() string {
	w.ids++
	return fmt.Sprintf("id%d", w.ids)
}

func newDeployment(rng *rand.Rand, servers int) *deployment {
	w := &deployment{rng: rng, now: 1, nat: []string{"same", "alias", "nobody", stranger}[rng.IntN(4)], cut: make(map[[2]int]bool)}
	w.bare = rng.IntN(6) == 0
	for i := range servers {
		w.led = append(w.led, i)
		w.servers = append(w.servers, &modelServer{up: true, primary: true, id: w.newID(), acked: make(map[int]clock.Instant)})
	}
	for i := 1; i < servers; i++ {
		w.follow(i, 0)
	}
	for range 3 {
		w.replicate()
	}
	w.note("%d servers, announced addresses lead to: %s; without IDs: %v", servers, w.nat, w.bare)
	return w
}

func (w *deployment) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%3d ", time.Duration(w.now)/time.Second)+fmt.Sprintf(format, args...))
}

func (w *deployment) promote(i int) {
	s := w.servers[i]
	if !s.primary {
		w.leave(i)
		s.primary, s.linked, s.before = true, false, s.id
		s.id = w.newID()
	}
}

// leave takes a replica off the list of its primary, if that can notice.
func (w *deployment) leave(i int) {
	if m := w.servers[i].master; !w.apart(i, m) {
		delete(w.servers[m].acked, i)
	}
}

func (w *deployment) follow(i, primary int) {
	s := w.servers[i]
	if i == primary || !s.primary && s.master == primary {
		return
	}
	if !s.primary {
		w.leave(i)
	}
	s.primary, s.master, s.linked = false, primary, false
	for r := range s.acked {
		delete(s.acked, r) // it drops its own replicas, which come back
		if f := w.servers[r]; !f.primary && f.master == i {
			f.linked = f.linked && w.apart(i, r)
		}
	}
}

func (w *deployment) crash(i int) {
	s := w.servers[i]
	s.up, s.linked = false, false
	for j, other := range w.servers {
		if !w.apart(i, j) {
			delete(other.acked, i)
			if !other.primary && other.master == i {
				other.linked = false
			}
		}
	}
	clear(s.acked)
}

func (w *deployment) restart(i int, keeps bool) {
	s := w.servers[i]
	s.started = w.now
	if s.up = true; !s.primary && w.rng.IntN(4) > 0 {
		if w.rng.IntN(4) == 0 { // without its data
			s.id, s.before = w.newID(), ""
		}
		return
	}
	s.primary = true // it was told to be a replica by hand, and that is not in its configuration
	s.before = ""
	if keeps {
		s.before = s.id
	}
	s.id = w.newID()
}

func (w *deployment) apart(i, j int) bool { return w.cut[[2]int{min(i, j), max(i, j)}] }

// replicate is a second of replication.
func (w *deployment) replicate() {
	for i, s := range w.servers {
		if !s.up || s.primary {
			continue
		}
		m := w.servers[s.master]
		alive := m.up && !w.apart(i, s.master)
		_, listed := m.acked[i]
		switch {
		case s.linked && alive && listed:
			s.lastData, m.acked[i] = w.now, w.now
			if s.id != m.id { // it has gone on with what its primary continues
				s.before, s.id = s.id, m.id
			}
		case s.linked && !alive && w.now.Sub(s.lastData) < time.Minute:
		case alive && (m.primary || m.linked):
			switch s.id { // it goes on, or begins with a copy
			case m.id:
			case m.before:
				s.before = s.id
			default:
				s.before = ""
			}
			s.linked, s.lastData, s.id = true, w.now, m.id
			m.acked[i] = w.now
		default:
			s.linked = false
		}
	}
	for i, s := range w.servers {
		s.followed = append(s.followed, w.followers(i))
		for r, at := range s.acked {
			if w.now.Sub(at) > time.Minute {
				delete(s.acked, r)
			}
		}
	}
	w.now = w.now.Add(time.Second)
}

// followers is how many replicas a server has that get data from it.
func (w *deployment) followers(i int) (n int) {
	for j, r := range w.servers {
		if r.up && !r.primary && r.master == i && r.linked && w.servers[i].up && !w.apart(i, j) {
			n++
		}
	}
	return n
}

// ahead reports whether a has, or had lately, more replicas than b, or than the client last heard that b has.
func (w *deployment) ahead(a, b, reported int) bool {
	n := len(w.servers[a].followed)
	for i := max(0, n-int((leaveAfter+ackedWithin)/time.Second)); i < n; i++ {
		if f := w.servers[a].followed[i]; f > w.servers[b].followed[i] || f > reported {
			return true
		}
	}
	return w.followers(a) > min(w.followers(b), reported)
}

// at returns the server at an address: one of the deployment, or somebody else's, or nobody.
func (w *deployment) at(addr string) (i int, foreign bool) {
	if _, err := fmt.Sscanf(addr, "s%d:1", &i); err == nil {
		return w.led[i], false
	}
	if _, err := fmt.Sscanf(addr, "10.0.0.%d:1", &i); err != nil || w.nat == "nobody" {
		return -1, false
	}
	return i, w.nat == stranger
}

// info is INFO replication.
func (w *deployment) info(i int) string {
	s := w.servers[i]
	shown := func(i int) (string, string) {
		addr := announced(i)
		if w.nat == "same" {
			addr = name(slices.Index(w.led, i))
		}
		host, port, _ := strings.Cut(addr, ":")
		return host, port
	}
	before := s.before
	if before == "" {
		before = strings.Repeat("0", 40)
	}
	text := fmt.Sprintf("# Replication\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", s.id, before)
	if w.bare {
		text = ""
	}
	if s.primary {
		text += "role:master\r\n"
	} else {
		host, port := shown(s.master)
		link := map[bool]string{true: "up", false: "down"}[s.linked]
		text += fmt.Sprintf("role:slave\r\nmaster_host:%s\r\nmaster_port:%s\r\nmaster_link_status:%s\r\nmaster_last_io_seconds_ago:%d\r\n",
			host, port, link, w.now.Sub(s.lastData)/time.Second)
	}
	n := 0
	for r, at := range s.acked {
		host, port := shown(r)
		text += fmt.Sprintf("slave%d:ip=%s,port=%s,state=online,offset=0,lag=%d\r\n", n, host, port, w.now.Sub(at)/time.Second)
		n++
	}
	return text
}
