package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// One of three servers is slow, and a waiter has heard how slow. When it gets the vote of another,
// it does not keep that until the slow one answers: the owner of the first may need it.
func TestSlowMinorityDelaysNoOtherContender(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		const slow = time.Second
		s := independent(t, 3)
		other, v := s.open(), s.open()
		proxies := make([]*faultproxy.Proxy, len(v))
		for i := range v {
			proxies[i] = s.through(i, v)
		}
		l := v.lock("x")
		first, second, last := l.all.order[0], l.all.order[1], l.all.order[2]
		held := []*Hold{mustLock(t, other[first].Mutex("x")), mustLock(t, other[second].Mutex("x"))}
		proxies[last].Delay(faultproxy.All, slow/2, slow/2)
		waiting := l.LockAsync(ctxT(t))
		q := waiting.source.(*quorum)
		eventually(t, "the slow server has answered", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.parts[last].asked == nil
		})
		mustUnlock(t, held[1])
		eventually(t, "the waiter has the vote of the second", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.parts[second].vote != nil
		})
		again, err := other[second].Mutex("x").Lock(ctxT(t), Wait(slow/2))
		if err != nil {
			t.Fatal("it keeps the vote: ", err)
		}
		mustUnlock(t, again)
		mustUnlock(t, held[0])
		h, err := waiting.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustRelease(t, h)
		proxies[last].Delay(faultproxy.All, 0, 0)
		s.clean(other, v)
	})
}
