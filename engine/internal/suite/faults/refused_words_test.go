package faults

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// Proxies and managed services refuse in words of their own. What they refuse is done in
// another way, whatever the words, where there is one.

// A proxy in front of shards refuses a script whose keys are of several shards. Each lock works
// alone; holds of several slots are renewed all the same.
func TestHold_BatchRefusedInAnyWords_IsRenewed(t *testing.T) {
	t.Parallel()
	several := func(c faultproxy.Command) bool {
		if c.Name() != "EVALSHA" && c.Name() != "EVAL" || len(c.Words) < 3 {
			return false
		}
		keys, err := strconv.Atoi(c.Words[2])
		return err == nil && keys > 1
	}
	for _, line := range []string{
		"CROSSSLOT Keys in request don't hash to the same slot",
		"ERR 'EVAL' command keys must in same slot",
		"ERR script with several keys is not supported",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			_, p, e := testkit.Behind(t, func(c *engine.Config) { c.Lease = 3 * time.Second })
			p.ReplaceReply(several, []byte("-"+line+"\r\n"), -1)
			holds := make([]*engine.Hold, 0, 100) // so many that some are due together
			for _, name := range testkit.Names(cap(holds)) {
				holds = append(holds, testkit.MustLock(t, e.Mutex(name)))
			}
			testkit.Eventually(t, "every hold has been renewed four times, or one is lost", func() bool {
				s := e.Stats()
				return s.Renewed >= uint64(4*len(holds)) || s.Held < len(holds)
			})
			if s := e.Stats(); s.Held < len(holds) {
				t.Errorf("%d of %d holds are lost: %v", len(holds)-s.Held, len(holds), s.Lost)
			}
		})
	}
}

// Neither SCRIPT LOAD nor EVALSHA is needed: EVAL is all that a lock needs.
func TestLock_OnlyEvalIsKnown_Works(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"ERR unknown command '%s'",
		"ERR handle request, command '%s' is not allowed",
		"NOPERM this user has no permissions to run the '%s' command",
	} {
		for _, without := range [][]string{{"SCRIPT"}, {"EVALSHA"}, {"SCRIPT", "EVALSHA"}} {
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				s := testkit.Server(t)
				p := faultproxy.New(t, "tcp", s.Addr())
				for _, command := range without {
					p.ReplaceReply(faultproxy.Is(command), fmt.Appendf(nil, "-"+line+"\r\n", command), -1)
				}
				e, err := engine.Open(testkit.Within(t, 8*time.Second), "redis://"+p.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				for range 3 {
					testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
					h, err := e.FairMutex("f").Lock(testkit.Ctx(t))
					if err != nil {
						t.Fatal(err)
					}
					testkit.MustUnlock(t, h)
				}
			})
		}
	}
}
