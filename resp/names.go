package resp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

const (
	// goneAfter is how many answers in a row lack an address, have none but new ones, and agree on
	// one of these, before the name is taken to lead elsewhere.
	goneAfter = 3
	// goneAnyway is that number if they are not new, or do not agree: a name with many addresses
	// answers with some of them at a time, in turn, and leaves none out for that long.
	goneAnyway = 60
	// maxNames bounds the addresses that are remembered.
	maxNames = 1024
)

// nameHistory is what a name has been answered with. It decides when connections that are up
// lead to a server that the name has left:
//
//	name -> A        connected to A
//	name -> B        the server at A goes on, and so do the connections to it
//	name -> B, B     three answers without A, and with B, which is new: connect anew
//
// A name with many addresses, of which each answer has some, does not look like that: the answers
// differ, and the addresses come again. The dialer may find an address before an answer has it; it counts as
// part of the next answer. A history has no lock: it belongs to one goroutine.
type nameHistory struct {
	answers int // so many so far
	known   map[netip.Addr]seenAt
}

// seenAt is the first and the latest answer with an address, and how many in a row had it then.
type seenAt struct{ first, last, row int }

// answer takes an answer in, while connections are up to some addresses. It reports whether one
// of these is an address that the name has left; then the history begins anew with what has been
// answered since.
func (h *nameHistory) answer(addrs, connected []netip.Addr) (left netip.Addr, gone bool) {
	if len(addrs) == 0 {
		return left, false
	}
	if h.known == nil {
		h.known = make(map[netip.Addr]seenAt)
	}
	for _, addr := range connected {
		if _, ok := h.known[addr]; !ok {
			h.known[addr] = seenAt{first: h.answers + 1, last: h.answers} // the dialer found it since the latest answer
		}
	}
	h.answers++
	for _, addr := range addrs {
		addr = plain(addr)
		at, ok := h.known[addr]
		if !ok {
			at.first = h.answers
		}
		switch at.last {
		case h.answers:
			continue // it stands twice in this answer
		case h.answers - 1:
		default:
			at.row = 0
		}
		at.last, at.row = h.answers, at.row+1
		h.known[addr] = at
	}
	for _, addr := range connected {
		if h.left(addr) {
			h.forgetUpTo(h.known[addr].last)
			return addr, true
		}
	}
	if len(h.known) > maxNames {
		h.forgetUpTo(h.answers - goneAnyway)
	}
	return left, false
}

// plain is an address without its zone, and IPv4 as such.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// left reports whether the name has left an address.
func (h *nameHistory) left(addr netip.Addr) bool {
	last := h.known[addr].last
	switch absent := h.answers - last; {
	case absent < goneAfter:
		return false
	case absent >= goneAnyway:
		return true
	}
	agree := false
	for _, at := range h.known {
		if at.first <= last && at.last > last {
			return false
		}
		agree = agree || at.last == h.answers && at.row >= goneAfter
	}
	return agree
}

// forgetUpTo forgets the addresses that no later answer had.
func (h *nameHistory) forgetUpTo(n int) {
	for addr, at := range h.known {
		if at.last <= n {
			delete(h.known, addr)
		}
	}
}

var errNameMoved = errors.New("resp: the server's name leads to another address by now")

// watchedName returns the name of the one server, if it has one that has to be looked up: the
// address is no number, and no Dialer of the user's knows better.
func (c *Config) watchedName() (host string, ok bool) {
	if c.Topology != Standalone || c.Network != "tcp" || c.Dialer != nil || c.LookupInterval < 0 {
		return "", false
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil || host == "" {
		return "", false
	}
	_, err = netip.ParseAddr(host)
	return host, err != nil
}

// watchName looks the name of the server up, again and again, and has n connect anew once it
// leads elsewhere. An answer that fails changes nothing.
func (c *Client) watchName(ctx context.Context, n *node, host string) {
	var h nameHistory
	tick := time.NewTicker(c.cfg.LookupInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		addrs, err := c.lookUp(ctx, host)
		if err != nil {
			continue
		}
		if left, gone := h.answer(addrs, n.connected()); gone {
			c.cfg.Logger.Warn("resp: the server's name leads elsewhere by now, connecting anew; locks of the server that it has left are lost",
				"addr", n.cfg.Addr, "left", left.String(), "now", addrs[0].String())
			n.replace(errNameMoved)
		}
	}
}

// lookUp asks for the addresses of a host, within the interval.
func (c *Client) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.LookupInterval)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// connected returns the addresses that connections are up to, each once.
func (n *node) connected() (addrs []netip.Addr) {
	seen := make(map[netip.Addr]bool)
	for _, l := range n.links {
		l.mu.Lock()
		addr, up := l.mu.remote, l.mu.up
		l.mu.Unlock()
		if up && addr.IsValid() && !seen[addr] {
			seen[addr] = true
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// remoteOf is the other end of a connection; invalid if it has none that is a number.
func remoteOf(conn net.Conn) netip.Addr {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return plain(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}
