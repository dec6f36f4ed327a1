package resp

import (
	"fmt"
	"net"
	"strings"

	"github.com/pawl-lock/pawl/internal/fakenode"
)

var infos = fakenode.Is("INFO", "replication")

// replicationState is what a server says of its part in replication, to INFO and to ROLE.
type replicationState struct{ info, role string }

// leader is a primary. data is its replication ID; "B<A" is B, which continues A.
func leader(data string, replicas ...string) replicationState {
	var b strings.Builder
	id, before, _ := strings.Cut(data, "<")
	fmt.Fprintf(&b, "# Replication\r\nrole:master\r\nconnected_slaves:%d\r\n", len(replicas))
	for i, r := range replicas {
		host, port, _ := net.SplitHostPort(r)
		fmt.Fprintf(&b, "slave%d:ip=%s,port=%s,state=online,offset=0,lag=0\r\n", i, host, port)
	}
	if before == "" {
		before = strings.Repeat("0", 40)
	}
	fmt.Fprintf(&b, "master_failover_state:no-failover\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", id, before)
	return replicationState{info: bulk(b.String()), role: primaryReply(replicas...)}
}

// follower is a replica with the data of that ID, which hears from its primary or does not.
func follower(primary, data string, linked bool) replicationState {
	host, port, _ := net.SplitHostPort(primary)
	link, state := "down", "connect"
	if linked {
		link, state = "up", "connected"
	}
	return replicationState{role: replicaReply(primary, state), info: bulk(fmt.Sprintf("# Replication\r\nrole:slave\r\nmaster_host:%s\r\nmaster_port:%s\r\n"+
		"master_link_status:%s\r\nmaster_last_io_seconds_ago:0\r\nconnected_slaves:0\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n",
		host, port, link, data, strings.Repeat("0", 40)))}
}

// lagging is what a primary says that has heard nothing from its replicas for some seconds.
func (r replicationState) lagging(seconds int) replicationState {
	r.info = strings.ReplaceAll(r.info, ",lag=0", fmt.Sprintf(",lag=%d", seconds))
	return r
}

// answer is for bubbleNet.on.
func (r replicationState) answer(words []string) string {
	switch words[0] {
	case "INFO":
		return r.info
	case "ROLE":
		return r.role
	}
	return ""
}

// play has a node answer like that.
func (r replicationState) play(node *fakenode.Node) {
	node.On(infos, fakenode.Raw(r.info))
	node.On(roles, fakenode.Raw(r.role))
}
