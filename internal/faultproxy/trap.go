package faultproxy

import "github.com/pawl-lock/pawl/internal/respio"

// Command is one command on its way to the server.
type Command = respio.Command

// Match picks commands. It runs with the proxy's lock held: it only looks.
type Match = respio.Match

// Any matches every command.
func Any(Command) bool { return true }

// Is matches commands that begin with these words, in any case.
func Is(words ...string) Match { return respio.Is(words...) }

// Has matches commands that contain word, exactly, anywhere after the first.
func Has(word string) Match { return respio.Has(word) }

// verb is what a Trap does with the commands it catches.
type verb uint8

const (
	watch verb = iota // count and look on
	replace
	cutBefore
	cutAfter
)

// Trap lies in wait for commands.
type Trap struct {
	proxy *Proxy
	match Match
	verb  verb
	reply []byte // replace
	left  int    // commands still to catch; -1: endless
	done  int    // how many have been dealt with
}

// Done returns how many commands have been dealt with: counted, answered, or
// the connection cut.
func (t *Trap) Done() int {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	return t.done
}

// Wait waits until Done is at least count. It fails the test after 20 s.
func (t *Trap) Wait(count int) {
	t.proxy.t.Helper()
	t.proxy.wait("a trap", func() bool { return t.done >= count })
}

// Remove disarms the trap; what it has caught goes its way.
func (t *Trap) Remove() {
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	t.left = 0
}

func (p *Proxy) arm(t *Trap) *Trap {
	t.proxy = p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// Watch counts commands and does nothing else.
func (p *Proxy) Watch(m Match) *Trap {
	return p.arm(&Trap{match: m, verb: watch, left: -1})
}

// CutBeforeRequest cuts the connection of the next command that m matches. The
// server never sees that command nor any behind it on the connection; those
// before it are answered first.
func (p *Proxy) CutBeforeRequest(m Match) *Trap {
	return p.arm(&Trap{match: m, verb: cutBefore, left: 1})
}

// CutAfterRequest lets the server execute the next command that m matches, drops
// the answer, and cuts the connection. Commands before it are answered first;
// the server never sees those behind it.
func (p *Proxy) CutAfterRequest(m Match) *Trap {
	return p.arm(&Trap{match: m, verb: cutAfter, left: 1})
}

// ReplaceReply answers the next times commands that m matches with raw, which
// should be one whole reply; -1 times: all. The server never sees them.
func (p *Proxy) ReplaceReply(m Match, raw []byte, times int) *Trap {
	return p.arm(&Trap{match: m, verb: replace, reply: raw, left: times})
}

// caughtLocked returns the trap that decides about cmd, nil if none does. The
// newest that matches wins; watching ones only count.
func (p *Proxy) caughtLocked(cmd Command) *Trap {
	var caught *Trap
	for i := len(p.traps) - 1; i >= 0; i-- {
		t := p.traps[i]
		switch {
		case t.left == 0:
			p.traps = append(p.traps[:i], p.traps[i+1:]...)
		case t.verb != watch && caught != nil || !t.match(cmd):
		case t.verb == watch:
			t.done++
			p.notifyLocked()
		default:
			t.left--
			caught = t
		}
	}
	return caught
}

func (t *Trap) tell() {
	if t == nil {
		return
	}
	t.proxy.mu.Lock()
	defer t.proxy.mu.Unlock()
	t.done++
	t.proxy.notifyLocked()
}
