package resp

import (
	"context"
	"errors"

	"github.com/pawl-lock/pawl/resp/wire"
)

// Do sends one command and waits for its answer. It is for cold paths: set-up,
// introspection, tests. In a cluster its first argument is taken as the key; a command
// without arguments goes to the node that serves slot 0. If ctx ends before the answer,
// the outcome of the command is unknown.
func (c *Client) Do(ctx context.Context, words ...string) (Value, error) {
	if ctx.Err() != nil {
		return Value{}, errors.Join(ErrNotSent, context.Cause(ctx))
	}
	r := &doRequest{words: words, done: make(chan struct{})}
	route := uint64(0)
	if c.Clustered() && len(words) > 1 {
		route = c.Route(words[1])
	}
	c.Submit(route, r)
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		return Value{}, errors.Join(ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// doRequest is the Request of Do.
type doRequest struct {
	words []string
	value Value
	err   error
	done  chan struct{}
}

func (d *doRequest) AppendCommand(dst []byte, _ ScriptForm) []byte {
	return wire.AppendCommand(dst, d.words...)
}

func (d *doRequest) Complete(r Reply) {
	d.value, d.err = r.Value.Clone(), r.Err
	close(d.done)
}
