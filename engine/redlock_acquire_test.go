package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/quorum"
)

// Two of one process wait at a server that hangs. The second is not held up for longer than the first.
func TestRedLock_SecondWaiterOfAProcess_IsNotHeldUpByTheServerThatItWaitsAt(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill ", kill), func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				s := independent(t, 3)
				a, b := s.open(), s.open()
				held := mustRedLock(t, a.lock("x"))
				eventually(t, "all three join", func() bool { return len(held.Servers()) == 3 })
				l := b.lock("x")
				at := l.all.order[0]
				first, second := l.LockAsync(ctxT(t)), l.LockAsync(ctxT(t))
				for _, f := range []*Future[*Hold]{first, second} {
					q := f.source.(*redLockAcquisition)
					eventually(t, "it waits at the first server", func() bool {
						q.mu.Lock()
						defer q.mu.Unlock()
						return q.Stage == quorum.Waiting && slices.IndexFunc(q.Members, func(p quorum.Member) bool { return p.Asked != nil }) == at
					})
				}
				if kill {
					s.servers[at].Kill()
				} else {
					s.servers[at].Stop()
					defer func() { _ = s.servers[at].Process.Cont() }()
				}
				mustRelease(t, held)
				for range 2 {
					free := time.Now()
					var h *Hold
					var err error
					select {
					case <-first.Done():
						h, err = first.Result()
						first = second
					case <-second.Done():
						h, err = second.Result()
						second = first
					case <-ctxT(t).Done():
						t.Fatal("nobody gets it")
					}
					if err != nil {
						t.Fatal(err)
					}
					if d := time.Since(free); d > 3*quorum.LongestWait {
						t.Errorf("granted %v after it was free", d)
					}
					mustRelease(t, h)
				}
				if kill {
					s.servers[at].Restart()
				} else {
					s.servers[at].Cont()
				}
				s.clean(a, b)
			})
		})
	}
}
