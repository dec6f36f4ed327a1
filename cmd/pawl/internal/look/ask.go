package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// ask sends a command that only reads to the server of the name. What that refuses is hidden, and
// has no value.
func (l *Looker) ask(ctx context.Context, s *Seen, words ...string) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	q := &question{words: words, done: make(chan struct{})}
	l.client.Submit(l.client.Route(s.Name), q)
	var err error
	select {
	case <-q.done:
		err = q.err
	case <-ctx.Done():
		err = errors.New("no answer in time")
	}
	switch {
	case errors.As(err, new(*resp.ServerError)):
		s.Hidden = cmp.Or(s.Hidden, err)
		return resp.Value{}, nil
	case err != nil:
		return resp.Value{}, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return q.value, nil
}

// question is a command, and its answer. A resp.Client's Do would ask any server of a cluster
// for the TIME.
type question struct {
	words []string
	value resp.Value
	err   error
	done  chan struct{}
}

// AppendCommand implements resp.Request.
func (q *question) AppendCommand(dst []byte, _ resp.Form) []byte {
	return wire.AppendCommand(dst, q.words...)
}

// Complete implements resp.Request.
func (q *question) Complete(r resp.Reply) {
	q.value, q.err = r.Value.Clone(), r.Err
	close(q.done)
}
