package requesttest

import (
	"sync/atomic"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// DurableCall is a Call that replicas are to acknowledge if its answer is not 0.
type DurableCall struct {
	*Call
	Want    request.Acks
	Dropped atomic.Bool
	Before  func() // called when it is about to be sent
}

func NewDurableCall(n int, want request.Acks) *DurableCall {
	return &DurableCall{Call: NewCall(n), Want: want}
}

func (c *DurableCall) Wants() request.Acks        { return c.Want }
func (c *DurableCall) NeedsAck(v wire.Value) bool { return v.Int != 0 }

func (c *DurableCall) Wanted() bool {
	if c.Before != nil {
		c.Before()
	}
	return !c.Dropped.Load()
}

// AckOf is what a reply says of the replicas.
func AckOf(r request.Reply) request.Ack {
	if r.Ack == nil {
		return request.Ack{}
	}
	return *r.Ack
}
