package engine

import "testing"

// A release that may have been executed before is done when the owner is not there any
// more, whatever has the key by then: the hold was valid when Unlock was called. Found by
// the simulation.
func TestReleaseThatMayHaveBeenExecutedIsNoLossIfTheKeyIsAnothersByThen(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(s interface{ Do(...string) any }){
		"gone":     func(s interface{ Do(...string) any }) { s.Do("DEL", "x") },
		"a string": func(s interface{ Do(...string) any }) { s.Do("SET", "x", "y") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			e := open(t, s.URL())
			h := mustLock(t, e.Mutex("x"))
			s.Do("ACL", "SETUSER", "default", "-hdel")
			released := h.UnlockAsync()
			eventually(t, "it is refused", func() bool { return releaseRefused(h) })
			then(s)
			s.Do("ACL", "SETUSER", "default", "+hdel")
			if _, err := released.Await(ctxT(t)); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
}
