package topology

import (
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

// modelClient is a client and what it can reach.
type modelClient struct {
	finder     *replicaFinder
	cut        []bool
	refused    []bool        // its password
	asleep     clock.Instant // until then it does not look
	there      bool          // in the latest look its primary has said that it is one, or has refused
	gone       clock.Instant // since the first look that it was neither; 0: it is
	left       bool          // it has said that it is none, or been gone, and has not said since that it is one
	mayLeave   bool          // so it was in the latest look
	deployment *deployment
}

func (w *deployment) client(configured []string) *modelClient {
	cfg := Config{Kind: Replicas, Addrs: configured, Clock: w, DialTimeout: 5 * time.Second,
		Identity: NewIdentity(Replicas, configured, w, slog.New(slog.DiscardHandler))}
	return &modelClient{finder: newReplicaFinder(&cfg, nil), cut: make([]bool, len(w.servers)), refused: make([]bool, len(w.servers)), deployment: w}
}

// look is a search.
func (c *modelClient) look() (replicationInfo, error) {
	was, now := c.finder.resolver.followed.addr, c.deployment.now
	c.there = false
	one, err := c.finder.primary(c.ask)
	if c.there {
		c.gone = 0
	} else if c.gone == 0 {
		c.gone = now
	}
	c.left = c.left || c.gone != 0 && now.Sub(c.gone) >= leaveAfter
	c.mayLeave = c.left
	if c.finder.resolver.followed.addr != was {
		c.gone, c.left = 0, false
	}
	return one, err
}

func (c *modelClient) ask(addrs []string) (all []replicationInfo) {
	w := c.deployment
	for _, addr := range addrs {
		i, foreign := w.at(addr)
		a := replicationInfo{addr: addr}
		switch {
		case i >= 0 && foreign:
			a = parseReplicationInfo(c.finder.cfg, addr, "role:master\r\nmaster_replid:"+stranger+"\r\nmaster_replid2:\r\n"+
				"slave0:ip=10.9.9.9,port=1,state=online,offset=0,lag=0\r\nslave1:ip=10.9.9.8,port=1,state=online,offset=0,lag=0\r\n")
			a.connectedSince = never
		case i >= 0 && c.cut[i]:
			a.err = ErrSilent
		case i < 0 || !w.servers[i].up:
			a.err = errors.New("connection refused")
		case c.refused[i]:
			a.err = &wire.ServerError{Code: "WRONGPASS", Message: "WRONGPASS"}
		case w.servers[i].busy:
			a.err = &wire.ServerError{Code: "BUSY", Message: "BUSY"}
		default:
			a = parseReplicationInfo(c.finder.cfg, addr, w.info(i))
			a.connectedSince = w.servers[i].started
		}
		a.silent = pending(a.err)
		if !foreign && !c.unvouched(addr, i) {
			c.observe(&a)
		}
		all = append(all, a)
	}
	return all
}

// observe notes what the primary says, by whatever name.
func (c *modelClient) observe(a *replicationInfo) {
	f := c.finder.resolver.followed
	switch mine := a.addr == f.addr; {
	case a.primary && (mine || a.id == f.id):
		c.there, c.left = true, false
	case mine && a.refuses():
		c.there = true
	case mine && a.demoted():
		c.left = true
	}
}

// reached reports whether a client gets answers from a server.
func (c *modelClient) reached(i int) bool {
	s := c.deployment.servers[i]
	return i >= 0 && s.up && !s.busy && !c.cut[i] && !c.refused[i]
}

// TestFailoverResolver_RandomDeployments_ConvergeOnOnePrimary: whatever happens to the servers, a client leaves its primary
// only if that says that it is none, or has been gone for leaveAfter, or if another has had more
// replicas; and never for somebody else's server. Nor
// does it ever say that nobody serves while the primary answers, or move when nothing happens.
// After a while in which nothing happens all follow the one that has most replicas.
// And when all is well again it follows the primary, and so does a new client, though some
// servers may not be back.
func TestFailoverResolver_RandomDeployments_ConvergeOnOnePrimary(t *testing.T) {
	t.Parallel()
	seed, histories := rand.Uint64(), 300
	if n, err := strconv.Atoi(os.Getenv("PAWL_FAILOVER_HISTORIES")); err == nil {
		histories = n
	}
	if s, err := strconv.ParseUint(os.Getenv("PAWL_FAILOVER_SEED"), 10, 64); err == nil {
		seed, histories = s, 1
	}
	for h := range histories {
		w := history(t, seed+uint64(h))
		if t.Failed() {
			t.Fatalf("PAWL_FAILOVER_SEED=%d\n%s", seed+uint64(h), strings.Join(w.log, "\n"))
		}
	}
}

func history(t *testing.T, seed uint64) *deployment {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newDeployment(rng, 2+rng.IntN(3))
	var all []string
	for i := range w.servers {
		all = append(all, name(i))
	}
	configured := all
	if rng.IntN(3) == 0 && !w.bare {
		configured = all[:1+rng.IntN(len(all))]
	}
	w.note("configured: %v", configured)
	clients := []*modelClient{w.client(configured), w.client(configured)}
	var heal clock.Instant
	for range 60 {
		switch {
		case heal != 0 && w.now >= heal:
			w.note("all can reach each other")
			w.heal(clients)
			heal = 0
		case heal == 0 && rng.IntN(20) == 0:
			heal = w.now.Add(w.split(clients))
		case rng.IntN(4) == 0:
			w.step(clients)
		}
		if rng.IntN(20) == 0 {
			clients[1] = w.client(configured)
			w.note("client 1 is new")
		}
		for n, c := range clients {
			if w.rng.IntN(20) == 0 {
				c.asleep = w.now.Add(time.Duration(w.rng.IntN(20)) * time.Second)
				w.note("client %d is suspended until %v", n, c.asleep)
			}
			if w.now < c.asleep {
				continue
			}
			was := c.finder.resolver.followed
			_, err := c.look()
			from, foreign := w.at(was.addr)
			if err != nil && !w.moved && !foreign && from >= 0 && was.addr != "" && c.reached(from) && w.servers[from].primary && !c.unvouched(was.addr, from) {
				t.Errorf("client %d has lost %s, which is alive: %v", n, was.addr, err)
				return w
			}
			if err == nil && was.addr != "" && !w.moved {
				if c.judge(t, was); t.Failed() {
					w.note("client %d left %s for %s", n, was.addr, c.finder.resolver.followed.addr)
					return w
				}
			}
		}
		w.replicate()
	}
	if rng.IntN(2) == 0 {
		w.rest(t, clients)
	}
	if !t.Failed() {
		w.settle(t, clients, configured)
	}
	return w
}

// unvouched reports whether a server at an address that is not configured has been started since
// the client followed it: if it has lost its data, nothing tells it from a server of somebody else.
func (c *modelClient) unvouched(addr string, i int) bool {
	return i >= 0 && !slices.Contains(c.finder.cfg.Addrs, addr) && c.deployment.servers[i].started > c.finder.believed
}

// rest is two minutes in which nothing happens: then lists are true, and clients stay.
func (w *deployment) rest(t *testing.T, clients []*modelClient) {
	w.note("nothing happens")
	var was [2]string // of each client
	for i := range 120 {
		for n, c := range clients {
			c.look()
			is := c.finder.resolver.followed.addr
			if i > 80 && is != was[n] {
				w.note("client %d leaves %s for %s", n, was[n], is)
				t.Error("nothing happens, and clients move")
				return
			}
			was[n] = is
		}
		w.replicate()
	}
	w.agree(t, clients)
}

// agree checks that clients that reach a primary that has most replicas follow that one.
func (w *deployment) agree(t *testing.T, clients []*modelClient) {
	best, most := -1, 0
	for i, s := range w.servers {
		switch f := w.followers(i); {
		case s.busy || w.moved:
			return // nobody can know
		case !s.up || !s.primary || f < most:
		case f > most:
			best, most = i, f
		default:
			best = -1
		}
	}
	for n, c := range clients {
		known := len(c.finder.cfg.Addrs) == len(w.servers) && !slices.Contains(c.refused, true)
		if best < 0 || !known || !c.reached(best) {
			continue
		}
		if one, err := c.look(); err != nil || one.addr != name(best) && one.addr != announced(best) {
			t.Errorf("client %d: s%d has most replicas, not %s: %v", n, best, one.addr, err)
		}
	}
}

// judge says whether a client should have left the primary that it had.
func (c *modelClient) judge(t *testing.T, was replicationInfo) {
	w, is := c.deployment, c.finder.resolver.followed
	to, foreign := w.at(is.addr)
	if foreign {
		t.Errorf("%s is not of this deployment", is.addr)
		return
	}
	from, _ := w.at(was.addr)
	if to == from {
		return
	}
	reported := math.MaxInt // how many replicas it has counts if it says so
	if !c.reached(from) {
		reported = was.attached
	}
	if !c.mayLeave && !w.ahead(to, from, reported) {
		t.Errorf("%s has no more replicas than %s, which is there", is.addr, was.addr)
	}
}

// settle ends all trouble. One server is the primary, and all others that are up follow it,
// but for some that were primaries and were not told.
func (w *deployment) settle(t *testing.T, clients []*modelClient, configured []string) {
	w.heal(clients)
	primary := w.led[w.rng.IntN(len(configured))]
	if w.nat == "same" || w.nat == "alias" { // then a replica that is configured leads to it
		primary = w.rng.IntN(len(w.servers))
	}
	for i, s := range w.servers {
		s.busy = false
		if !s.up && (i == primary || i == w.led[0] || w.rng.IntN(2) == 0) {
			w.restart(i, w.rng.IntN(2) == 0)
		}
	}
	if w.rng.IntN(2) == 0 { // or the one that is
		for i, s := range w.servers {
			if s.primary && s.up && slices.Index(w.led, i) < len(configured) {
				primary = i
			}
		}
	}
	w.promote(primary)
	notified := 0
	for _, i := range w.led {
		s := w.servers[i]
		if i != primary && s.up && (!s.primary || notified == 0 || w.rng.IntN(2) == 0) {
			w.follow(i, primary)
			notified++
		}
	}
	if last := (primary + 1) % len(w.servers); notified == 0 {
		w.restart(last, true)
		w.follow(last, primary)
	}
	for i, s := range w.servers {
		if !s.up && w.rng.IntN(2) == 0 {
			for _, c := range clients { // its machine has vanished
				c.cut[i] = true
			}
		}
	}
	w.note("all is well, the primary is s%d", primary)
	for range 20 {
		w.replicate()
		for _, c := range clients {
			c.look()
		}
	}
	clients = append(clients, w.client(configured))
	copy(clients[len(clients)-1].cut, clients[0].cut)
	for range (leaveAfter + 6*time.Second) / time.Second {
		w.replicate()
		for _, c := range clients {
			c.look()
		}
	}
	for n, c := range clients {
		one, err := c.look()
		if i, foreign := w.at(one.addr); err != nil || i != primary || foreign {
			t.Errorf("client %d: %s serves, not s%d: %v", n, one.addr, primary, err)
		}
	}
}
