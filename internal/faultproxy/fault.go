package faultproxy

import "time"

// Info is what is known of a connection.
type Info struct {
	ID         int            // counted from 1 in order of arrival
	ClientName string         // from CLIENT SETNAME
	Commands   map[string]int // how many it has carried, by name in upper case
}

// Select picks connections. It runs with the proxy's lock held: it only looks.
type Select func(c Info) bool

// All picks every connection.
func All(Info) bool { return true }

// Carried picks connections that have carried the command of this name, in
// upper case. One that carries it later is picked from then on, that command
// included.
func Carried(command string) Select {
	return func(c Info) bool { return c.Commands[command] > 0 }
}

// Named picks connections by client name.
func Named(name string) Select { return func(c Info) bool { return c.ClientName == name } }

// Not picks the others.
func Not(s Select) Select { return func(c Info) bool { return !s(c) } }

// hold is a Pause; lag is a Delay.
type hold struct {
	sel     Select
	resumed chan struct{}
}

type lag struct {
	sel      Select
	up, down time.Duration
}

// Cut resets the connections that sel picks, towards both ends, and returns how
// many. What the proxy still held of their bytes is lost.
func (p *Proxy) Cut(sel Select) int {
	p.mu.Lock()
	var victims []*conn
	for _, c := range p.conns {
		if sel(c.infoLocked()) {
			victims = append(victims, c)
		}
	}
	p.mu.Unlock()
	for _, c := range victims {
		c.end(reset)
	}
	return len(victims)
}

// Blackhole swallows all bytes of the connections that sel picks, the ends of
// streams included, in both directions, until Heal: neither end is told. It goes
// for connections to come as well. (They are still accepted: no proxy can keep
// the kernel from doing so.)
func (p *Proxy) Blackhole(sel Select) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holes = append(p.holes, sel)
}

// Heal ends every Blackhole. Connections that have lost bytes are reset, as a
// network that has forgotten them does; the others go on.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.holes = nil
	var broken []*conn
	for _, c := range p.conns {
		if c.lost {
			broken = append(broken, c)
		}
	}
	p.mu.Unlock()
	for _, c := range broken {
		c.end(reset)
	}
}

// Pause holds the bytes of the connections that sel picks, in both directions,
// until Resume; nothing is lost. It goes for connections to come as well.
func (p *Proxy) Pause(sel Select) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, hold{sel, make(chan struct{})})
}

// Resume ends every Pause.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		close(h.resumed)
	}
	p.holds = nil
}

// Delay lets the bytes of the connections that sel picks take this long to the
// server and back; several commands may be under way, as on a long line. The
// newest Delay that picks a connection goes for it. Bytes already under way keep
// theirs. Delay(All, 0, 0) ends it.
func (p *Proxy) Delay(sel Select, up, down time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lags = append(p.lags, lag{sel, up, down})
}

func (p *Proxy) lagLocked(c *conn) (l lag) {
	for i := len(p.lags) - 1; i >= 0; i-- {
		if p.lags[i].sel(c.infoLocked()) {
			return p.lags[i]
		}
	}
	return lag{}
}

// clear waits until nothing holds c and reports whether its bytes get through;
// if not, c is marked as having lost some.
func (p *Proxy) clear(c *conn) bool {
	for {
		resumed := p.heldBy(c)
		if resumed == nil {
			break
		}
		select {
		case <-resumed:
		case <-c.over:
			return false
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sel := range p.holes {
		if sel(c.infoLocked()) {
			c.lost = true
		}
	}
	// Once bytes are lost, those behind them are too: a stream has no holes.
	return !c.lost
}

func (p *Proxy) heldBy(c *conn) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		if h.sel(c.infoLocked()) {
			return h.resumed
		}
	}
	return nil
}
