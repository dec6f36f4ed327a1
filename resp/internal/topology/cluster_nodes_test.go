package topology

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/resp/wire"
)

func TestClusterNodes_AnswersOfServers_AreRead(t *testing.T) {
	t.Parallel()
	const text = `07c37d 127.0.0.1:30004@31004 slave e7d1ee 0 1426238317239 4 connected
67ed2d 127.0.0.1:30002@31002,host2,shard-id=69bc myself,master - 0 0 2 connected 5461-10922 [93-<-292f8b]
292f8b ::1:30003@31003,,tls-port=6379 master,fail? - 1426238316232 0 3 disconnected [94->-67ed2d]
6ec239 :0@0 slave,fail,noaddr 67ed2d 1426238316232 1426238315000 5 disconnected
aaaaaa :17001@27001 master - 0 0 0 connected 7
bbbbbb 10.0.0.1:6379@16379 handshake - 0 0 0 connected

`
	cfg := Config{AddrMap: NewAddressMap(func(addr string) string { return strings.Replace(addr, "127.0.0.1", "example.org", 1) })}
	nodes, err := cfg.clusterNodes(strings.ReplaceAll(text, "\n", "\r\n"), "asked:1")
	if err != nil {
		t.Fatal(err)
	}
	want := []clusterNode{
		{id: "07c37d", primary: "e7d1ee", peer: peer{[]string{"127.0.0.1:30004"}, []string{"example.org:30004"}}},
		{id: "67ed2d", serves: true, peer: peer{[]string{"127.0.0.1:30002", "host2:30002"}, []string{"example.org:30002", "host2:30002"}}},
		{id: "292f8b", peer: peer{[]string{"[::1]:30003"}, []string{"[::1]:30003"}}},
		{id: "6ec239", primary: "67ed2d", peer: peer{names: []string{"6ec239"}}},
		{id: "aaaaaa", serves: true, peer: peer{[]string{"asked:17001"}, []string{"asked:17001"}}},
	}
	if !reflect.DeepEqual(nodes, want) {
		t.Errorf("got\n%+v, want\n%+v", nodes, want)
	}
	if _, err := cfg.clusterNodes("one two three\n", ""); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("a line of three words: %v", err)
	}
}

// listed is CLUSTER NODES in short: "A 0-5" serves slots, "b>A" follows A, "C" does
// neither. The address of a node is its name.
func listed(t *testing.T, short string) []clusterNode {
	t.Helper()
	var text strings.Builder
	for _, node := range strings.Split(short, ", ") {
		name, slots, _ := strings.Cut(node, " ")
		name, primary, replica := strings.Cut(name, ">")
		flags := "master"
		if replica {
			flags = "slave"
		} else {
			primary = "-"
		}
		if slots == "fails" {
			flags, slots = flags+",fail", ""
		}
		fmt.Fprintf(&text, "%s %s:1@2 %s %s 0 0 0 connected %s\n", name, name, flags, primary, slots)
	}
	nodes, err := new(Config).clusterNodes(text.String(), "")
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// The lists are what one node after the other says.
func TestGroupTracker_Failovers_KeepTheReplicas(t *testing.T) {
	t.Parallel()
	for name, story := range map[string][]struct {
		list string
		want string // by address: how many replicas a primary there would have
	}{
		"failed replicas count until they are forgotten": {
			{"A 0-9, b>A, c>A", "A2 b2 c2"},
			{"A 0-9, b>A, c>A fails", "A2 b2 c2"},
			{"A 0-9, b>A", "A1 b1"},
		},
		"each group has its own": {
			{"A 0-5, B 6-9, c>A, d>B, e>B, F", "A1 c1 B2 d2 e2"},
		},
		"failover, by the word of sentinels that are behind": {
			{"A 0-9, b>A, c>A", "A2 b2 c2"},
			{"A, b 0-9, c>A", "A2 b2 c2"},   // nobody knows of their new role
			{"A, b 0-9, c>b", "A2 b2 c2"},   //
			{"A>b, b 0-9, c>A", "A2 b2 c2"}, // a chain
			{"A>b, b 0-9, c>b", "A2 b2 c2"},
			{"A>b, b, c 0-9", "A2 b2 c2"}, // the next one
		},
		"failover, first seen in the middle": {
			{"A>b, b 0-9, c>A", "A2 b2 c2"},
		},
		"a primary that died counts until it is forgotten": {
			{"A 0-9, b>A, c>A", "A2 b2 c2"},
			{"A fails, b 0-9, c>b", "A2 b2 c2"},
			{"b 0-9, c>b", "b1 c1"},
		},
		"a replica is given to another group": {
			{"A 0-5, B 6-9, c>A, d>A", "A2 c2 d2 B0"},
			{"A 0-5, B 6-9, c>A, d>B", "A1 c1 B1 d1"},
		},
		"a group is dissolved": {
			{"A 0-5, B 6-9, c>A", "A1 c1 B0"},
			{"A, B 0-9, c>A", "B0"},
			{"A>B, B 0-9, c>B", "A2 B2 c2"},
		},
		"an empty primary is nobody's": {
			{"A 0-9, b>A, N", "A1 b1"},
			{"A 0-9, b>A, N, m>N", "A1 b1"},
			{"A 0-5, b>A, N 6-9, m>N", "A1 b1 N1 m1"},
		},
		"replicas of each other": {
			{"A 0-9, b>c, c>b", "A0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c groupTracker
			for _, chapter := range story {
				want := make(map[string]int)
				for _, word := range strings.Fields(chapter.want) {
					want[word[:1]+":1"] = int(word[1] - '0')
				}
				got := make(map[string]int)
				for addr, g := range c.next(listed(t, chapter.list)).of {
					got[addr] = g.Replicas
				}
				if !maps.Equal(got, want) {
					t.Fatalf("%s: %v, want %v", chapter.list, got, want)
				}
			}
		})
	}
}

// An address goes to another server in time: that of a primary is the primary's.
func TestGroupTracker_AddressUsedAgain_IsThePrimarys(t *testing.T) {
	t.Parallel()
	for range 20 { // groups come in a random order
		var c groupTracker
		nodes := listed(t, "A 0-5, b>A, c>A, B 6-9, d>B")
		nodes[1].peer = nodes[3].peer // b had B's address
		if g := c.next(nodes).of["B:1"]; g.Replicas != 1 {
			t.Fatalf("%d replicas", g.Replicas)
		}
	}
}
