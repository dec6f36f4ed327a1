package ctxwatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member waits until it is given up.
type member struct {
	place  Slot[*member]
	mu     sync.Mutex
	why    []error
	gaveUp chan struct{}
}

func newMember() *member { return &member{gaveUp: make(chan struct{})} }

func (m *member) WatchSlot() *Slot[*member] { return &m.place }

func (m *member) GiveUp(s lockerr.Cancel) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why = append(m.why, s.Cause); len(m.why) == 1 {
		close(m.gaveUp)
	}
	return true
}

func (m *member) causes() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.why)
}

// counted counts what is registered with contexts.
func counted(all *Watches[*member]) *int {
	n := new(int)
	all.AfterFunc = func(ctx context.Context, f func()) func() bool {
		*n++
		return context.AfterFunc(ctx, f)
	}
	return n
}

func TestMembersOfOneContextShareOneAfterFuncAndEndWithIt(t *testing.T) {
	t.Parallel()
	var all Watches[*member]
	registered := counted(&all)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	members := make([]*member, 100)
	for i := range members {
		members[i] = newMember()
		all.Join(ctx, members[i])
	}
	left := members[50]
	left.place.Leave(left)
	left.place.Leave(left) // again does no harm
	if *registered != 1 || all.Len() != 1 {
		t.Errorf("%d were registered for %d groups, want 1 for 1", *registered, all.Len())
	}
	why := errors.New("enough")
	cancel(why)
	for i, m := range members {
		if m == left {
			continue
		}
		select {
		case <-m.gaveUp:
		case <-time.After(30 * time.Second):
			t.Fatalf("member %d was not given up", i)
		}
		if got := m.causes(); !slices.Equal(got, []error{why}) {
			t.Errorf("member %d was given up for %v", i, got)
		}
	}
	if got := left.causes(); len(got) != 0 {
		t.Errorf("one that had left was given up for %v", got)
	}
	if all.Len() != 0 {
		t.Errorf("%d groups are left", all.Len())
	}
}

func TestTheLastToLeaveEndsTheGroup(t *testing.T) {
	t.Parallel()
	var all Watches[*member]
	registered := counted(&all)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a, b := newMember(), newMember()
	all.Join(ctx, a)
	all.Join(ctx, b)
	a.place.Leave(a)
	b.place.Leave(b)
	if all.Len() != 0 {
		t.Errorf("%d groups are left", all.Len())
	}
	c := newMember()
	all.Join(ctx, c)
	if *registered != 2 || all.Len() != 1 {
		t.Errorf("%d were registered for %d groups, want a second for a new one", *registered, all.Len())
	}
	c.place.Leave(c)
}

func TestAContextThatCannotEndIsNotWatched(t *testing.T) {
	t.Parallel()
	var all Watches[*member]
	registered := counted(&all)
	m := newMember()
	all.Join(context.Background(), m)
	m.place.Leave(m)
	if *registered != 0 || all.Len() != 0 {
		t.Errorf("%d were registered for %d groups", *registered, all.Len())
	}
}

// A context that panics while it is asked leaves no group that others join in vain.
func TestAContextThatPanicsLeavesNothing(t *testing.T) {
	t.Parallel()
	all := Watches[*member]{AfterFunc: func(context.Context, func()) func() bool { panic("mine") }}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic got lost")
			}
		}()
		all.Join(ctx, newMember())
	}()
	if all.Len() != 0 {
		t.Errorf("%d groups are left", all.Len())
	}
}

func TestStopOfTellsATimeThatIsOverFromACancel(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if s := CancelOf(cancelled); s.Cause != why || s.TimedOut {
		t.Errorf("%+v", s)
	}
	late, stop := context.WithTimeoutCause(context.Background(), 0, why)
	defer stop()
	if s := CancelOf(late); s.Cause != why || !s.TimedOut {
		t.Errorf("%+v", s)
	}
}
