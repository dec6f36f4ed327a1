package fakenode

import (
	"sync"

	"github.com/pawl-lock/pawl/internal/respio"
)

// Command is one command that a connection carried. Connect stands for its
// arrival: a Command without words, the first of each connection.
type Command = respio.Command

// Match picks commands. It runs with the node's lock held: it only looks.
type Match = respio.Match

// Connect matches the arrival of a connection. Its rule says what the client
// gets before it has sent anything; without one, nothing.
func Connect(c Command) bool { return len(c.Words) == 0 }

// Any matches every command, Connect not.
func Any(c Command) bool { return len(c.Words) > 0 }

// Is matches commands that begin with these words, in any case.
func Is(words ...string) Match { return respio.Is(words...) }

// Has matches commands that contain word, exactly, anywhere after the first.
func Has(word string) Match { return respio.Has(word) }

// OnConn restricts m to one connection.
func OnConn(id int, m Match) Match {
	return func(c Command) bool { return c.Conn == id && m(c) }
}

// Rule is one entry of a node's table.
type Rule struct {
	node   *Node
	match  Match
	action Action
	left   int // matches until it is used up; -1: endless
	hits   int
}

// Hits returns how many commands the rule has caught.
func (r *Rule) Hits() int {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	return r.hits
}

// Remove takes the rule out of the table. Commands it caught keep its action.
func (r *Rule) Remove() {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	r.left = 0
}

// Gate holds something back until the test lets it go. A Gate may be shared.
type Gate struct {
	open chan struct{}
	once sync.Once
	step chan struct{}
}

// NewGate returns a closed Gate.
func NewGate() *Gate {
	return &Gate{open: make(chan struct{}), step: make(chan struct{}, 1<<16)}
}

// Open lets everything through, from now on.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Step lets one pass, now or when it arrives.
func (g *Gate) Step() { g.step <- struct{}{} }

// pass waits for the gate; false: the connection ended first.
func (g *Gate) pass(ended <-chan struct{}) bool {
	select {
	case <-g.open:
	case <-g.step:
	case <-ended:
		return false
	}
	return true
}
