package exchangetest

import (
	"sync/atomic"

	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/wire"
)

// DurableCall is a Call that replicas are to acknowledge if its answer is not 0.
type DurableCall struct {
	*Call
	Want    exchange.Acks
	Dropped atomic.Bool
	Before  func() // called when it is about to be sent
}

func NewDurableCall(n int, want exchange.Acks) *DurableCall {
	return &DurableCall{Call: NewCall(n), Want: want}
}

func (c *DurableCall) Wants() exchange.Acks       { return c.Want }
func (c *DurableCall) NeedsAck(v wire.Value) bool { return v.Int != 0 }

func (c *DurableCall) Wanted() bool {
	if c.Before != nil {
		c.Before()
	}
	return !c.Dropped.Load()
}

// AckOf is what a reply says of the replicas.
func AckOf(r exchange.Reply) exchange.Ack {
	if r.Ack == nil {
		return exchange.Ack{}
	}
	return *r.Ack
}
