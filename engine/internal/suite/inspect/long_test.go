package inspect

import (
	"fmt"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// The names of a page of locks fit into a reply, however long they are.
func TestList_LongNames_AreListed(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	const locks = 600
	s.Do("EVAL", `for i = 1, ARGV[1] do local k = string.rep('x', 65000) .. i
		redis.call('HSET', k, '0f5ae6ca-8d7b-4d28-a2f6-3d5f6b9c7a11:39', 1); redis.call('PEXPIRE', k, 600000) end`, "0", fmt.Sprint(locks))
	before := e.Stats()
	n := 0
	for _, err := range e.List(testkit.Ctx(t), "*") {
		if err != nil {
			t.Error(err)
			break
		}
		n++
	}
	after := e.Stats()
	if n != locks || after.Reconnects != before.Reconnects {
		t.Errorf("%d locks, %d reconnects", n, after.Reconnects-before.Reconnects)
	}
}
