package engine

import (
	"fmt"
	"strings"
	"testing"
)

// A resource that waits for its next name keeps nothing of the last one: a name may be long,
// and a shard keeps many.
func TestResourcesForUseAgainKeepNoName(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	const n = 200
	for i := range n {
		mustUnlock(t, mustLock(t, e.Mutex(fmt.Sprint(i, strings.Repeat("x", maxName/2)))))
	}
	free, kept := 0, 0
	for i := range e.table.Shards() {
		sh := &e.table.Shards()[i]
		sh.Lock()
		for _, r := range sh.Free() {
			free++
			kept += len(r.Name)
		}
		sh.Unlock()
	}
	if free < n/4 || kept != 0 {
		t.Errorf("%d resources for use again keep %d bytes of names", free, kept)
	}
}
