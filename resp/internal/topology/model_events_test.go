package topology

import (
	"slices"
	"time"
)

// step is one thing that happens.
func (w *deployment) step(clients []*modelClient) {
	n := len(w.servers)
	i, j := w.rng.IntN(n), w.rng.IntN(n)
	s := w.servers[i]
	switch k := w.rng.IntN(20); {
	case k == 0 && s.up:
		w.note("s%d crashes", i)
		w.crash(i)
	case k <= 2 && !s.up:
		keeps := w.rng.IntN(2) == 0
		w.note("s%d restarts, with its data: %v", i, keeps)
		w.restart(i, keeps)
	case k == 3 && s.up && !s.primary:
		w.note("s%d is promoted", i)
		w.promote(i)
	case k == 4 && s.up && i != j && w.servers[j].primary:
		w.note("s%d is told to follow s%d", i, j)
		w.follow(i, j)
	case k == 5 && i != j:
		w.note("s%d and s%d cannot reach each other", i, j)
		w.cut[[2]int{min(i, j), max(i, j)}] = true
	case k == 6:
		w.note("the servers can reach each other")
		clear(w.cut)
	case k == 7:
		c := w.rng.IntN(len(clients))
		w.note("client %d cannot reach s%d", c, i)
		clients[c].cut[i] = true
	case k == 8:
		c := w.rng.IntN(len(clients))
		w.note("client %d can reach all", c)
		clear(clients[c].cut)
		clear(clients[c].refused)
	case k == 9:
		w.note("s%d is busy: %v", i, !s.busy)
		s.busy = !s.busy
	case k <= 11:
		w.failover(i)
	case k == 12:
		w.isolate(clients, i)
	case k == 13:
		w.note("all can reach each other")
		w.heal(clients)
	case k == 14 && s.up && i != j && !w.follows(j, i):
		w.note("s%d is told to follow s%d, which may be a replica", i, j)
		w.follow(i, j)
	case k == 15 && s.up && s.primary && len(s.acked) == 0:
		w.note("s%d has no use for its backlog, and begins another history", i)
		s.id, s.before = w.newID(), ""
	case k == 16 && s.up && !s.primary && s.linked && w.servers[s.master].primary && !w.apart(i, s.master):
		w.note("s%d hands over to s%d", s.master, i)
		m := s.master
		w.promote(i)
		w.follow(m, i)
	case k == 17 && s.up:
		w.note("s%d restarts at once", i)
		w.crash(i)
		w.restart(i, w.rng.IntN(2) == 0)
	case k == 18:
		c := w.rng.IntN(len(clients))
		w.note("client %d is refused by s%d: %v", c, i, !clients[c].refused[i])
		clients[c].refused[i] = !clients[c].refused[i]
	case k == 19 && i != j && w.rng.IntN(3) == 0:
		w.note("s%d and s%d change their addresses", i, j)
		a, b := slices.Index(w.led, i), slices.Index(w.led, j)
		w.led[a], w.led[b] = j, i
		w.moved = true
	}
}

// follows reports whether i is a replica of j, or of one of its replicas.
func (w *deployment) follows(i, j int) bool {
	for range w.servers {
		if w.servers[i].primary {
			return false
		}
		if i = w.servers[i].master; i == j {
			return true
		}
	}
	return true
}

// isolate cuts a server off from all others, and from the clients.
func (w *deployment) isolate(clients []*modelClient, i int) {
	w.note("s%d is cut off", i)
	for j := range w.servers {
		w.cut[[2]int{min(i, j), max(i, j)}] = i != j
	}
	for _, c := range clients {
		c.cut[i] = true
	}
}

func (w *deployment) heal(clients []*modelClient) {
	clear(w.cut)
	for _, c := range clients {
		clear(c.cut)
		clear(c.refused)
	}
}

// failover promotes a server, and has those follow it that it can reach; a former primary
// perhaps not.
func (w *deployment) failover(to int) {
	s := w.servers[to]
	if !s.up || s.primary {
		return
	}
	w.promote(to)
	var notified []int
	for i, f := range w.servers {
		if f.up && i != to && !w.apart(i, to) && (!f.primary || w.rng.IntN(2) == 0) {
			w.follow(i, to)
			notified = append(notified, i)
		}
	}
	w.note("s%d is promoted, and followed by %v", to, notified)
}

// split is a primary that is cut off, a failover, and the return of the old one a few
// seconds later.
func (w *deployment) split(clients []*modelClient) (returns time.Duration) {
	for i, s := range w.servers {
		if s.up && s.primary && w.followers(i) > 0 {
			w.isolate(clients, i)
			w.failover((i + 1 + w.rng.IntN(len(w.servers)-1)) % len(w.servers))
			return time.Duration(w.rng.IntN(8)) * time.Second
		}
	}
	return 0
}
