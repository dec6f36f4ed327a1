package topology

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/wire"
)

func TestActionOf_Refusals_LeadToActions(t *testing.T) {
	t.Parallel()
	translated := NewAddressMap(func(addr string) string {
		if addr == "bad:1" {
			return ""
		}
		return "proxy:" + addr[len(addr)-1:]
	})
	for _, addr := range []string{"n:2", "bad:1"} {
		translated.ask(addr)
	}
	moved := func(to string) Action {
		return Action{To: to, Slot: 7, Permanent: true, Refresh: RefreshNow, Hint: to, Doubt: IfItLasts}
	}
	for name, c := range map[string]struct {
		refusal string
		at      Refused
		want    Action
	}{
		"moved":                         {"MOVED 7 n:2", Refused{Kind: Cluster}, moved("n:2")},
		"moved, as IPv6":                {"MOVED 7 ::1:2", Refused{Kind: Cluster}, moved("[::1]:2")},
		"moved to another port":         {"MOVED 7 :2", Refused{Kind: Cluster, Addr: "a:1"}, moved("a:2")},
		"moved, the last time":          {"MOVED 7 n:2", Refused{Kind: Cluster, Hops: MaxHops - 1}, moved("n:2")},
		"moved once too often":          {"MOVED 7 n:2", Refused{Kind: Cluster, Hops: MaxHops}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved to nobody":               {"MOVED 7", Refused{Kind: Cluster}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved, a slot that is none":    {"MOVED 16384 n:2", Refused{Kind: Cluster}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved to no port":              {"MOVED 7 n", Refused{Kind: Cluster}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved to port 0":               {"MOVED 7 n:0", Refused{Kind: Cluster}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved to a socket":             {"MOVED 7 /run/x:1", Refused{Kind: Cluster}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved to one without its name": {"MOVED 7 ?:2", Refused{Kind: Cluster}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved, behind NAT":             {"MOVED 7 n:2", Refused{Kind: Cluster, AddrMap: translated}, moved("proxy:2")},
		"moved, behind NAT, to another port": {
			"MOVED 7 :2", Refused{Kind: Cluster, Addr: "proxy:1", AddrMap: translated}, moved("proxy:2")},
		"moved, and AddrMap has not been asked": {
			"MOVED 7 n:3", Refused{Kind: Cluster, AddrMap: translated}, Action{Refresh: RefreshNow, Doubt: IfItLasts, Unknown: "n:3"}},
		"moved, and AddrMap does not know": {
			"MOVED 7 bad:1", Refused{Kind: Cluster, AddrMap: translated},
			Action{Refresh: RefreshNow, Doubt: IfItLasts, Unknown: "bad:1", Advice: " (resp: Config.AddrMap returns no address for bad:1)"}},
		"asked":                              {"ASK 7 n:2", Refused{Kind: Cluster}, Action{To: "n:2", Slot: 7}},
		"asked once too often":               {"ASK 7 n:2", Refused{Kind: Cluster, Hops: MaxHops}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved to itself":                    {"MOVED 7 a:1", Refused{Kind: Cluster, Addr: "a:1"}, Action{Refresh: RefreshNow, Doubt: AtOnce}},
		"moved to itself, spelled otherwise": {"MOVED 7 A:1", Refused{Kind: Cluster, Addr: "a:1"}, Action{Refresh: RefreshNow, Doubt: AtOnce}},
		"moved to its port":                  {"MOVED 7 :1", Refused{Kind: Cluster, Addr: "a:1"}, Action{Refresh: RefreshNow, Doubt: AtOnce}},
		"asked to come back":                 {"ASK 7 a:1", Refused{Kind: Cluster, Addr: "a:1"}, Action{Refresh: RefreshNow, Doubt: AtOnce}},
		"moved to itself, behind NAT": {
			"MOVED 7 n:2", Refused{Kind: Cluster, Addr: "proxy:2", AddrMap: translated}, Action{Refresh: RefreshNow, Doubt: AtOnce}},
		"moved to itself, and no cluster": {"MOVED 7 a:1", Refused{Kind: Standalone, Addr: "a:1"},
			Action{Doubt: AtOnce, Advice: " (this is a node of a cluster: connect with redis+cluster://)"}},
		"no login any more":     {"NOAUTH Authentication required.", Refused{Kind: Sentinel}, Action{Doubt: Certain}},
		"no login here":         {"WRONGPASS invalid", Refused{Kind: Cluster}, Action{Doubt: Certain}},
		"no right, of this one": {"NOPERM this user has no permissions", Refused{Kind: Cluster}, Action{}},
		"asked to go nowhere":   {"ASK", Refused{Kind: Cluster}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"moved, and no cluster": {
			"MOVED 7 n:2", Refused{Kind: Standalone}, Action{Doubt: IfItLasts, Advice: " (this is a node of a cluster: connect with redis+cluster://)"}},
		"asked, and no cluster": {
			"ASK 7 n:2", Refused{Kind: Sentinel}, Action{Doubt: IfItLasts, Advice: " (this is a node of a cluster: connect with redis+cluster://)"}},
		"nobody serves the slot":     {"CLUSTERDOWN Hash slot not served", Refused{Kind: Cluster}, Action{Refresh: RefreshSoon, Doubt: IfItLasts}},
		"the primary is away":        {"MASTERDOWN Link with MASTER is down", Refused{Kind: Sentinel}, Action{Refresh: RefreshSoon, Doubt: IfItLasts}},
		"a replica, in a cluster":    {"READONLY You can't write", Refused{Kind: Cluster}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"a replica, by sentinels":    {"READONLY You can't write", Refused{Kind: Sentinel}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"a replica, by hand":         {"READONLY You can't write", Refused{Kind: Replicas}, Action{Refresh: RefreshNow, Doubt: IfItLasts}},
		"not now":                    {"LOADING the dataset", Refused{Kind: Cluster}, Action{Doubt: IfItLasts}},
		"cut off from its replicas":  {"NOREPLICAS Not enough good replicas", Refused{Kind: Standalone}, Action{Doubt: IfItLasts}},
		"its disk is full":           {"MISCONF Redis is configured to save", Refused{Kind: Sentinel}, Action{Doubt: IfItLasts}},
		"no memory for this one":     {"OOM command not allowed", Refused{Kind: Standalone}, Action{}},
		"not now, while a slot goes": {"TRYAGAIN Multiple keys", Refused{Kind: Cluster}, Action{}},
		"never":                      {"WRONGTYPE Operation", Refused{Kind: Standalone}, Action{}},
		"a replica, alone": {"READONLY You can't write", Refused{Kind: Standalone}, Action{Refresh: RefreshNow, Doubt: IfItLasts,
			Advice: " (this is a replica: connect with redis+sentinel:// or redis+replicas://)"}},
	} {
		e := wire.NewServerError([]byte(c.refusal))
		if got := ActionOf(e, c.at); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if e.Message != c.refusal {
			t.Errorf("%s: the refusal says %q by now", name, e.Message)
		}
	}
}

// FuzzRedirect: whatever a server refuses with, no socket is dialled, and nothing goes on for
// ever.
func FuzzRedirect(f *testing.F) {
	f.Add("MOVED 7 n:2", uint8(0))
	f.Add("ASK 16383 [::1]:6379", uint8(4))
	f.Add("MOVED 7 /tmp/x:1", uint8(0))
	f.Add("READONLY", uint8(255))
	f.Fuzz(func(t *testing.T, refusal string, hops uint8) {
		for _, kind := range []Kind{Standalone, Cluster, Sentinel, Replicas} {
			r := ActionOf(wire.NewServerError([]byte(refusal)), Refused{Kind: kind, Addr: "/run/redis", Hops: hops})
			if r.To != "" && (NetworkOf(r.To) != "tcp" || kind != Cluster || hops >= MaxHops || r.Slot >= 16384) {
				t.Fatalf("%q leads to %+v", refusal, r)
			}
		}
	})
}
