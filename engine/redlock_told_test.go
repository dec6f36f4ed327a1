package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Another has the first of three servers. The second grants the lock at once and the third late,
// so each vote is given back before the other comes.
func TestVotesThatWereGivenBackAreNotCalledGranted(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	slices.SortFunc(s.servers, func(a, b *redistest.Server) int { return strings.Compare(a.Addr(), b.Addr()) })
	other, v := s.open(), s.open()
	p := s.through(2, v)
	locks := v.lock("x")
	locks.all.order = []int{0, 1, 2} // the proxy has an address of its own
	held := mustLock(t, other[0].Mutex("x"))
	p.Delay(faultproxy.All, 50*time.Millisecond, 50*time.Millisecond)
	_, err := locks.Lock(ctxT(t), Wait(200*time.Millisecond)) // nobody is asked again so soon
	if !errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) || !hasText(err, "granted by 0 of 3 servers") ||
		!hasText(err, s.servers[0].Addr()+": held by another") || !hasText(err, s.servers[1].Addr()+": it was granted, and given back") {
		t.Errorf("%v", err)
	}
	p.Delay(faultproxy.All, 0, 0)
	mustUnlock(t, held)
	s.clean(other, v)
}
