package front

import (
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Somebody deletes the queue while engines wait, or it is evicted, or its name is used for something else. Those
// who had a place find the lock by their alarms, and come back into the queue if there can be one.
func TestMutex_QueueDamaged_AllAreServed(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string][]string{
		"deleted":    {"DEL", queue},
		"a string":   {"SET", queue, "not a queue"},
		"half of it": {"ZREMRANGEBYRANK", queue, "0", "4"},
		"strangers":  {"ZADD", queue, "-4", "a:1", "-3", "b:1", "-2", "c:1", "-1", "no colon", "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContest(t, single(t))
			h := testkit.MustLock(t, c.lock(c.open(1)[0]))
			list := c.line(c.open(10)...)
			c.awaitAsleep()
			c.at.Do(queue, damage...)
			testkit.MustUnlock(t, h)
			c.wantServed(list...)
			again := c.open(6)
			c.loop(20, again...)
			if name == "a string" {
				if v := c.at.Do(queue, "GETDEL", queue); v != "not a queue" {
					t.Errorf("the string is %v", v)
				}
			}
			c.wantOnlyTheDead()
		})
	}
}
