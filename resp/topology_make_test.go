package resp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Servers of another make have no replication IDs: a replica is neither taken for one that has
// lost its primary, nor for one that has the data of the primary that it has been.
func TestReplicaWithoutAReplicationIDStandsForNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := func(r replicationState) func([]string) string {
			r.info = bulk(withoutIDs(r.info))
			return r.answer
		}
		net := newBubbleNet()
		net.on("a:1", plain(leader("A", "b:1")))
		net.on("b:1", plain(follower("a:1", "A", true)))
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
		net.on("b:1", plain(leader("B")))
		net.on("a:1", plain(follower("b:1", "B", true)))
		within(t, 2*time.Second, "the new one serves", served(c, 0, "b:1"))
	})
}

// withoutIDs is the text of an INFO reply without replication IDs.
func withoutIDs(reply string) string {
	_, text, _ := strings.Cut(reply, "\r\n")
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(text, "\r\n")) {
		if !strings.HasPrefix(line, "master_replid") {
			b.WriteString(line)
		}
	}
	return b.String()
}
