package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	questions "github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// A node that is down keeps no answer away, unless it is the one that publishes the questions.
func TestInspect_NodeDown_IsAnswered(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	short := func(c *engine.Config) { c.CommandTimeout, c.CloseTimeout = 200*time.Millisecond, time.Millisecond }
	e, asks := testkit.Open(t, c.URL(), inspected, short), testkit.Open(t, c.URL(), inspected, short)
	var down *redistest.Server
	for _, node := range c.Nodes() {
		if node != c.Owner(c.Slot(questions.Channel)) {
			down = node
		}
	}
	names := make(map[bool]string) // on the node that will be down, and elsewhere
	for i := 0; len(names) < 2; i++ {
		one := fmt.Sprint("lock", i)
		names[c.Owner(c.Slot(one)) == down] = one
	}
	name := names[false]
	testkit.MustLock(t, e.Mutex(name))
	look := func() bool {
		info, err := asks.Inspect(testkit.Ctx(t), name)
		return err == nil && info.NotAsked == nil && answers(info)
	}
	testkit.Eventually(t, "it answers", look)
	down.Kill()
	testkit.Eventually(t, "the node is missed", func() bool {
		_, err := asks.Mutex(names[true]).State(testkit.Ctx(t))
		return err != nil
	})
	missed := 0
	for range 30 {
		if !look() {
			missed++
		}
	}
	if missed > 3 { // while the first connections are lost
		t.Errorf("%d of 30 looks have no answer", missed)
	}
}
