package keyview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// betweenTries is the pause before a command is sent again.
const betweenTries = 20 * time.Millisecond

var errSilent = errors.New("no answer in time")

// ask sends a command that only reads to the server of the name. What that refuses is hidden, and
// has no value. Without an answer it is sent again, as the engine does, until it is too late: a
// node of a cluster that is just being given its first slot has no connection yet.
func (l *Viewer) ask(ctx context.Context, s *View, words ...string) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	for {
		v, err := l.try(ctx, s.Name, words)
		switch {
		case err == nil:
			return v, nil
		case errors.As(err, new(*resp.ServerError)):
			s.Hidden = cmp.Or(s.Hidden, err)
			return resp.Value{}, nil
		}
		select {
		case <-time.After(betweenTries):
		case <-ctx.Done():
			return resp.Value{}, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		}
	}
}

// try sends a command once.
func (l *Viewer) try(ctx context.Context, name string, words []string) (resp.Value, error) {
	q := &question{words: words, done: make(chan struct{})}
	l.client.Submit(l.client.Route(name), q)
	select {
	case <-q.done:
		return q.value, q.err
	case <-ctx.Done():
		return resp.Value{}, errSilent
	}
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
func (q *question) AppendCommand(dst []byte, _ resp.ScriptForm) []byte {
	return wire.AppendCommand(dst, q.words...)
}

// Complete implements resp.Request.
func (q *question) Complete(r resp.Reply) {
	q.value, q.err = r.Value.Clone(), r.Err
	close(q.done)
}
