package main

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// A node that has no slots yet is given its first one: nobody is connected to it, and it is asked
// for what a lock may have beside its hash.
func TestStatusAndUnlockReachANodeThatIsBeingGivenItsFirstSlot(t *testing.T) {
	t.Parallel()
	from, to := redistest.StartLone(t), redistest.StartLone(t)
	to.Do("CLUSTER", "RESET", "HARD") // takes its slots away
	_, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	from.Do("CLUSTER", "MEET", "127.0.0.1", port)
	for _, s := range []*redistest.Server{from, to} {
		eventually(t, "they know each other, and whose the slots are", func() bool {
			return strings.Contains(s.Info("CLUSTER", "INFO"), "cluster_state:ok") && !strings.Contains(s.Info("CLUSTER", "NODES"), "handshake") &&
				strings.Contains(s.Info("CLUSTER", "INFO"), "cluster_known_nodes:2")
		})
	}
	env := []string{target.URLEnv + "=redis+cluster://" + from.Addr()}
	from.Do("HSET", "a", "somebody:1", "1")
	from.Do("HSET", "b", "mode", "read", "somebody:1", "1")
	for _, name := range []string{"a", "b"} {
		slot := strconv.FormatInt(from.Do("CLUSTER", "KEYSLOT", name).(int64), 10)
		to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do("CLUSTER", "MYID").(string))
		from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.Do("CLUSTER", "MYID").(string))
		pawl(t, env, "status", name).expect(t, 0, "holder somebody:1")
		v := pawl(t, env, "unlock", "--force", name)
		if v.expect(t, 0, name+": removed"); v.stderr.Len() > 0 {
			t.Errorf("there is nothing to say: %s", v.stderr.String())
		}
	}
}

// What is known to be a read-write lock has no fair queue, so nobody asks for one: here the server
// cannot be asked.
func TestUnlockLooksForAFairQueueOnlyIfThereMayBeOne(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e := openEngine(t, s.URL())
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for kind, asks := range map[string]bool{"mutex": true, "fenced": true, "fair": false, "read-write": false} {
		seen := &engine.LockInfo{Name: "a", Kind: kind, Holders: []engine.HolderInfo{{Holder: engine.Holder{ID: "somebody:1", Count: 1}}}}
		if err := wakeQueue(t.Context(), e, seen); (err != nil) != asks {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
