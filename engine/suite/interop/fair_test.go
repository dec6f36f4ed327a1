package interop

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/kit"
)

// Threads of Java and goroutines that wait in one queue get the lock in the order in which they
// came.
func TestBothAreServedInTheOrderOfArrival(t *testing.T) {
	onEachStage(t, calm, func(k kind) bool { return k.queues }, func(t *testing.T, s *stage, k kind) {
		for round := range pick(5, 50) {
			x := s.subject(t, k, fmt.Sprint("order ", round))
			queue := "redisson_lock_queue:{" + x.names[0] + "}"
			first, err := x.lock(kit.Within(t, patience))
			if err != nil {
				t.Fatal(err)
			}
			const n = 12
			var mu sync.Mutex
			var order []int
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					served := func() {
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					}
					if i%2 == 0 {
						thread := fmt.Sprint("waiter", i)
						x.ask(thread, "lock", -1).want(t)
						served()
						x.ask(thread, "unlock").want(t)
						return
					}
					h, err := x.lock(kit.Within(t, patience))
					if err != nil {
						t.Error(err)
						return
					}
					served()
					if err := h.Unlock(kit.Within(t, patience)); err != nil {
						t.Error(err)
					}
				})
				kit.Eventually(t, "it is queued", func() bool { return s.sites[0].do(t, queue, "LLEN", queue) == int64(i+1) })
			}
			if err := first.Unlock(kit.Within(t, patience)); err != nil {
				t.Fatal(err)
			}
			all.Wait()
			if len(order) != n || !slices.IsSorted(order) {
				t.Errorf("they were served in the order %v", order)
			}
		}
	})
}
