package topology

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/wire"
)

// FuzzClusterNodes: whatever nodes answer, one after the other, the groups are whole.
func FuzzClusterNodes(f *testing.F) {
	for _, s := range []string{
		"a 10.0.0.1:1@2 myself,master - 0 0 1 connected 0-16383\nb 10.0.0.2:1@2 slave a 0 0 1 connected\n",
		"a :0@0 master,fail,noaddr - 0 0 1 disconnected\nb ::1:1@2,h,x=y slave,fail? c 0 0 1 connected\nc h:1 slave b 0 0 1 connected [1->-a]",
		"a a:1 slave a 0 0 0 x\n", "a", "\n\n", "a b c d e f g h i", "a : slave - 0 0 0 x 1",
	} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var c groupTracker
		for _, text := range []string{first, second, first} {
			nodes, err := new(Config).clusterNodes(text, "asked:1")
			if err != nil {
				continue
			}
			for addr, g := range c.next(nodes).of {
				if addr == "" || g.Replicas != len(g.peers)-1 || g.Replicas >= len(nodes) {
					t.Fatalf("%q: %d replicas of %d peers at %q", text, g.Replicas, len(g.peers), addr)
				}
				for _, p := range g.peers {
					if len(p.names) == 0 {
						t.Fatalf("%q: a server without a name", text)
					}
				}
				g.Away(addr, nil)
			}
		}
	})
}

// FuzzSentinelReplicas: whatever a sentinel answers, as many count as it lists.
func FuzzSentinelReplicas(f *testing.F) {
	for _, s := range []string{
		"*1\r\n*4\r\n$2\r\nip\r\n$8\r\n10.0.0.1\r\n$4\r\nport\r\n$1\r\n1\r\n",
		"*2\r\n*1\r\n$2\r\nip\r\n*0\r\n", "*1\r\n:1\r\n", "*0\r\n", ":1\r\n", "$-1\r\n", "*1\r\n*2\r\n$4\r\nport\r\n*1\r\n:1\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d wire.Decoder
		v, n, err := d.Decode(b)
		if err != nil || n == 0 {
			return
		}
		top := &sentinelFinder{cfg: &Config{}}
		g := top.groups("p:1", v).of["p:1"]
		if g == nil || g.Replicas != v.Len() {
			t.Fatalf("%q: %+v", b, g)
		}
		g.Away("p:1", nil)
	})
}
