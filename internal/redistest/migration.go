package redistest

import (
	"fmt"
	"strconv"
	"strings"
)

// Migrate has the cluster move a slot with its keys at once (see [SlotMigration]), and waits until
// every node knows. Meanwhile the old node serves the slot, and then answers MOVED.
func (c *Cluster) Migrate(slot int, to *Server) {
	c.t.Helper()
	from, n := c.AwaitOwner(slot), strconv.Itoa(slot)
	if from == to {
		return
	}
	var jobs []string
	asked := from
	if strings.HasPrefix(to.Version(), "Valkey") { // it is pushed, else it is pulled
		c.ok(from, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", n, n, "NODE", c.ID(to))
		jobs = []string{"CLUSTER", "GETSLOTMIGRATIONS"}
	} else {
		id, ok := to.Do("CLUSTER", "MIGRATION", "IMPORT", n, n).(string)
		if !ok {
			c.t.Fatalf("CLUSTER MIGRATION IMPORT of slot %s is refused", n)
		}
		asked, jobs = to, []string{"CLUSTER", "MIGRATION", "STATUS", "ID", id}
	}
	await(c.t, "the migration of slot "+n, func() bool {
		if state := fmt.Sprint(asked.Do(jobs...)); strings.Contains(state, "state failed") || strings.Contains(state, "state cancel") {
			c.t.Fatalf("slot %s: %s", n, state)
		}
		return c.Owner(slot) == to
	})
	await(c.t, "every node knows the epochs of all", c.sameEpochs)
}
