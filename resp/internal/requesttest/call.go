// Package requesttest has the Request that tests of every layer of resp send.
package requesttest

import (
	"strconv"
	"testing"

	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Call is a Request that asks the server to echo a number.
type Call struct {
	N     int
	Pad   string
	Done  chan struct{}
	reply request.Reply
	times int
	Then  func(request.Reply)
}

func NewCall(n int) *Call { return &Call{N: n, Done: make(chan struct{})} }

func (c *Call) AppendCommand(dst []byte, form request.ScriptForm) []byte {
	word := "ECHO"
	if form == request.Eval {
		word = "WHOLE"
	}
	return wire.AppendCommand(dst, word, strconv.Itoa(c.N), c.Pad)
}

func (c *Call) Complete(r request.Reply) {
	c.times++
	if c.times > 1 {
		panic("BUG: completed twice")
	}
	c.reply = r
	c.reply.Value = r.Value.Clone()
	if c.Then != nil {
		c.Then(r)
	}
	close(c.Done)
}

// Await waits for the outcome.
func (c *Call) Await(t testing.TB) request.Reply {
	t.Helper()
	sockettest.Receive(t, c.Done, "the outcome of call "+strconv.Itoa(c.N))
	return c.reply
}
