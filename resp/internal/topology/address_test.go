package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

func TestAnnounced_Addresses_AreHostAndPort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host, port, asked string
		want              string // "": refused
	}{
		{"10.0.0.1", "6379", "a:1", "10.0.0.1:6379"},
		{"::1", "6379", "a:1", "[::1]:6379"},
		{"fe80::1%eth0", "1", "a:1", "[fe80::1%eth0]:1"},
		{"redis-0.svc", "65535", "a:1", "redis-0.svc:65535"},
		{"h", "06379", "a:1", "h:6379"},
		{"", "6379", "a:1", "a:6379"},
		{"", "6379", "[::1]:1", "[::1]:6379"},
		{"", "6379", "/tmp/redis.sock", "localhost:6379"},
		{"", "6379", "", ""},
		{"?", "6379", "a:1", ""},
		{"h", "0", "a:1", ""},
		{"h", "65536", "a:1", ""},
		{"h", "-1", "a:1", ""},
		{"h", "", "a:1", ""},
		{"h", "redis", "a:1", ""},
		{"/run/user/x", "1", "a:1", ""},
		{"/run/user/x", "0", "a:1", ""},
		{"..\\x", "1", "a:1", ""},
		{"a b", "1", "a:1", ""},
		{"a\r\n", "1", "a:1", ""},
		{"a\x00", "1", "a:1", ""},
		{strings.Repeat("h", maxHost+1), "1", "a:1", ""},
	} {
		got, err := new(Config).announced(c.host, c.port, c.asked)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("host %.20q, port %q, asked at %q: %q, %v; want %q", c.host, c.port, c.asked, got, err, c.want)
		}
	}
}

// The user may well have servers behind sockets: AddrMap is theirs.
func TestAnnounced_AddrMap_MayNameASocket(t *testing.T) {
	t.Parallel()
	var asked []string
	cfg := Config{AddrMap: NewAddressMap(func(addr string) string {
		asked = append(asked, addr)
		if addr == "nowhere:1" {
			return ""
		}
		return "/tmp/" + addr
	})}
	if got, err := cfg.announced("h", "1", "a:1"); got != "/tmp/h:1" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := cfg.announced("nowhere", "1", "a:1"); err == nil {
		t.Errorf("%q for an address that AddrMap does not know", got)
	}
	if _, err := cfg.announced("/tmp/x", "1", "a:1"); err == nil {
		t.Error("a path was mapped")
	}
	if want := []string{"h:1", "nowhere:1"}; !slices.Equal(asked, want) {
		t.Errorf("AddrMap was asked for %q, want %q", asked, want)
	}
}

// A list of any length is work for its length, and leads to a few connections.
func TestAnnounced_LongLists_AreCut(t *testing.T) {
	t.Parallel()
	many := make([]string, 50_000)
	for i := range many {
		many[i] = fmt.Sprintf("10.%d.%d.%d:1", i>>16&255, i>>8&255, i&255)
	}
	start := time.Now()
	if n := len((&probes{clock: clock.System()}).candidates("hint:1", "", many, []string{"a:1", "b:1", "a:1"})); n != 1+maxKnown+2 {
		t.Errorf("%d candidates", n)
	}
	if n := len(unique(many, many)); n != len(many) {
		t.Errorf("%d are unique", n)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}

	decoded := func(reply string) wire.Value {
		var d wire.Decoder
		v, _, err := d.Decode([]byte(reply))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var sentinels, shards strings.Builder
	fmt.Fprintf(&sentinels, "*%d\r\n", len(many))
	fmt.Fprintf(&shards, "*%d\r\n", maxPrimaries+1)
	for i, addr := range many {
		host := strings.TrimSuffix(addr, ":1")
		fmt.Fprintf(&sentinels, "*4\r\n$2\r\nip\r\n$%d\r\n%s\r\n$4\r\nport\r\n$1\r\n1\r\n", len(host), host)
		if i <= maxPrimaries {
			fmt.Fprintf(&shards, "*3\r\n:%d\r\n:%d\r\n*2\r\n$%d\r\n%s\r\n:1\r\n", i, i, len(host), host)
		}
	}
	if n := len((&sentinelFinder{cfg: &Config{}}).others(decoded(sentinels.String()), "a:1")); n != MaxAnnounced {
		t.Errorf("%d sentinels", n)
	}
	if l, err := (&clusterFinder{cfg: &Config{}}).parse(decoded(shards.String()), "a:1"); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("a layout of %d primaries: %v", len(l.Primaries()), err)
	}
}
