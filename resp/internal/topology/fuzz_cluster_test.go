package topology

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/wire"
)

// FuzzClusterSlots: whatever a node answers, there is a layout without overlap, with
// addresses, or an error.
func FuzzClusterSlots(f *testing.F) {
	for _, s := range []string{
		"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:7000\r\n",
		"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$-1\r\n:7000\r\n$2\r\nid\r\n",
		"*2\r\n*3\r\n:5\r\n:9\r\n*2\r\n$1\r\n?\r\n:1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$3\r\n::1\r\n:1\r\n",
		"*0\r\n", "*1\r\n:1\r\n", "*1\r\n*3\r\n:9\r\n:2\r\n:1\r\n", ":1\r\n", "$-1\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d wire.Decoder
		v, n, err := d.Decode(b)
		if err != nil || n == 0 {
			return
		}
		top := &clusterFinder{cfg: &Config{}}
		l, err := top.parse(v, "asked:1")
		if err != nil {
			return
		}
		last := -1
		for _, s := range l.Shards {
			if int(s.First) <= last || s.Last < s.First || s.Last >= slot.Count || s.Primary == "" {
				t.Fatalf("%q: %+v", b, l.Shards)
			}
			last = int(s.Last)
		}
	})
}
