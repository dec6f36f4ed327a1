package engine

import (
	"fmt"
	"testing"
	"time"
)

func TestZZDebug(t *testing.T) {
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	for i := range 500 {
		f := m.LockAsync(ctxT(t))
		for range i % 50 {
			_, _ = f.Result()
		}
		f.Abandon()
	}
	time.Sleep(300*time.Millisecond)
	h, err := m.Lock(within(t, 2*time.Second))
	fmt.Println(h, err)
	fmt.Println(fields(t, s, "x"), s.Do("PTTL", "x"))
	sh := e.table.shard(m.hash)
	sh.mu.Lock()
	r := sh.resources[m.key]
	if r != nil {
		fmt.Printf("hold %+v\n", r.hold)
		n, due := 0, 0
		for d := r.debts; d != nil; d = d.next { n++; if d.due { due++ }; }
		fmt.Println("waiters", r.waiters.Len(), "tries", r.tries.Len(), "debts", n, due, "cmd", r.cmd.what, "held", r.held, "wait", r.wait)
	}
	sh.mu.Unlock()
	fmt.Printf("%+v\n", e.Stats())
}
