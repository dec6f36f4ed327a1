package pipeline

import (
	"net"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// scriptCall is a script call whose reply can be awaited.
type scriptCall struct {
	sha, text, key string
	done           chan request.Reply
}

func (c *scriptCall) AppendCommand(dst []byte, form request.Form) []byte {
	if form == request.Whole {
		return wire.AppendCommand(dst, "EVAL", c.text, "1", c.key)
	}
	return wire.AppendCommand(dst, "EVALSHA", c.sha, "1", c.key)
}

func (c *scriptCall) Complete(r request.Reply) {
	r.Value = r.Value.Clone()
	c.done <- r
}

// Each call counts once, though the server keeps forgetting the script.
func TestLaneOutlivesTheScriptCache(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const text = `return redis.call('incr', KEYS[1])`
	sha := server.Do("SCRIPT", "LOAD", text).(string)
	for _, c := range []sockettest.Carrier{{Name: "gnet", Network: "tcp"}, {Name: "std", Network: "tcp", ForceStd: true}} {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c)
			l := w.newLane(nil)
			conn, err := net.Dial("unix", server.Socket())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Attach(w.loops, conn); err != nil {
				t.Fatal(err)
			}
			const goroutines, each = 8, 200
			var all sync.WaitGroup
			for g := range goroutines {
				all.Go(func() {
					call := &scriptCall{sha: sha, text: text, key: c.Name, done: make(chan request.Reply, 1)}
					for i := range each {
						if g == 0 && i%10 == 0 {
							server.Do("SCRIPT", "FLUSH")
						}
						l.Submit(call)
						if r := sockettest.Receive(t, call.done, "a reply"); r.Err != nil || r.Value.Kind != wire.KindInt {
							t.Errorf("got %+v", r)
						}
					}
				})
			}
			all.Wait()
			last := &scriptCall{sha: sha, text: text, key: c.Name, done: make(chan request.Reply, 1)}
			l.Submit(last)
			if r := sockettest.Receive(t, last.done, "the count"); r.Value.Int != goroutines*each+1 {
				t.Errorf("counted %d, want %d", r.Value.Int, goroutines*each+1)
			}
			if l.Counters().Resent == 0 {
				t.Error("nothing was sent again; the test shows nothing")
			}
		})
	}
}
