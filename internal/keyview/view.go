package keyview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/internal/serverconfig"
	"github.com/pawl-lock/pawl/resp"
)

// Kind is a kind of synchronizer, as far as the server shows it.
type Kind string

// The kinds. Nothing is also a latch that is open, and a semaphore without permits. A Mutex may be
// a fair lock for which nobody waits, a Fenced lock may be held by somebody who takes it as a
// mutex: the keys are the same. A Count is that of a semaphore or of a latch, or of permits of
// which none is taken.
const (
	Nothing Kind = ""
	Mutex   Kind = "mutex"
	Fenced  Kind = "fenced"
	Fair    Kind = "fair"
	RW      Kind = "read-write"
	Permits Kind = "permits"
	Count   Kind = "count"
)

// View is what there is under a name.
type View struct {
	Name string
	Kind Kind
	// State is that of a lock.
	engine.State
	// Queue is how many wait for a fair lock. Those that have died count until it is noticed.
	Queue int
	// Token is the last fencing token of the lock; 0: there has been none.
	Token int64
	// Available are the permits that are to be had, Taken those that are held.
	Available int
	Taken     []Permit
	// Count is the number of a Count.
	Count int
	// Hidden is why the user may not see more than that; nil: there is no more.
	Hidden error
	// QueueHidden is why the user may not see whether others wait for it as for a fair lock.
	QueueHidden error
}

// Held reports whether anybody holds it: of permits, one of them.
func (s *View) Held() bool { return s.Locked || len(s.Taken) > 0 }

// Viewer looks at names. It must be closed.
type Viewer struct {
	eng      *engine.Engine
	client   *resp.Client
	patience time.Duration // for each answer
}

// Open connects to the deployment of an engine, besides it. As engine.New does, it waits for the servers
// of the names of ctx only (resp.ForNames), and ends by itself.
func Open(ctx context.Context, cfg engine.Config, eng *engine.Engine) (*Viewer, error) {
	c := serverconfig.Config(cfg)
	c.Lanes, c.EventLoops = 1, 1
	l := &Viewer{eng: eng, client: resp.Open(c), patience: cmp.Or(cfg.CommandTimeout, 3*time.Second)}
	if err := l.client.WaitFirst(ctx); err != nil {
		l.Close()
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return l, nil
}

// Close ends the connection.
func (l *Viewer) Close() { _ = l.client.Close() }

// At looks at a name.
func (l *Viewer) At(ctx context.Context, name string) (*View, error) {
	s := &View{Name: name}
	var err error
	s.State, err = l.eng.Mutex(name).State(ctx)
	switch {
	case errors.Is(err, engine.ErrWrongType):
		err = l.count(ctx, s, err)
	case err == nil && (s.Mode == "read" || s.Mode == "write"):
		s.Kind = RW
	case err == nil:
		err = l.companions(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// companions looks for what a lock may have beside its hash.
func (l *Viewer) companions(ctx context.Context, s *View) error {
	queue, err := l.ask(ctx, s, "LLEN", companion("redisson_lock_queue", s.Name))
	if err != nil {
		return err
	}
	s.QueueHidden = s.Hidden
	token, err := l.ask(ctx, s, "GET", companion("redisson_lock_token", s.Name))
	if err != nil {
		return err
	}
	s.Queue, s.Token = int(queue.Int), number(token)
	switch {
	case s.Queue > 0:
		s.Kind = Fair
	case s.Token != 0:
		s.Kind = Fenced
	case s.Locked:
		s.Kind = Mutex
	}
	return nil
}

// count looks at what is no lock, for that reason.
func (l *Viewer) count(ctx context.Context, s *View, why error) (err error) {
	s.Count, err = l.eng.Semaphore(s.Name).Available(ctx)
	var refused *resp.ServerError
	switch {
	case errors.As(err, &refused) && resp.RefusalOf(refused).Forbidden():
		return fmt.Errorf("%s is no lock, and this user may not see what else it is: %w; see the ACL rules in docs/operations.md", execlock.Shown(s.Name), refused)
	case errors.Is(err, engine.ErrWrongType), errors.As(err, new(*resp.ServerError)):
		return why
	case err != nil:
		return err
	}
	s.Kind = Count
	return l.permits(ctx, s)
}

// companion is the name of a key beside a lock's, by Redisson's rule.
func companion(prefix, name string) string { return prefix + ":" + tagged(name) }

func tagged(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}
