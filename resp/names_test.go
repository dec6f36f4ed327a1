package resp

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

func addrsOf(text string) (list []netip.Addr) {
	for word := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParseAddr("10.0.0."+word))
	}
	return list
}

func TestNameHistory_Answers_SayWhetherTheNameHasLeft(t *testing.T) {
	t.Parallel()
	repeat := func(n int, answers ...string) (all []string) {
		for i := range n {
			all = append(all, answers[i%len(answers)])
		}
		return all
	}
	for _, x := range []struct {
		what      string
		connected string
		answers   []string // "" fails
		gone      int      // after so many answers; 0: never
	}{
		{"it stays", "1", repeat(100, "1"), 0},
		{"a switch", "1", []string{"1", "1", "2", "2", "2", "2"}, 5},
		{"a switch before the first answer", "1", []string{"2", "2", "2"}, 3},
		{"a switch to several servers", "1", []string{"1", "2 3", "3 4", "3 5"}, 4},
		{"a resolver that fails", "1", repeat(100, ""), 0},
		{"a resolver that fails between", "1", []string{"1", "", "2", "", "2", "", "", "2"}, 8},
		{"two answers only", "1", []string{"1", "2", "2", "1", "2", "2", "1"}, 0},
		{"round robin", "1", repeat(100, "1 2", "2 1"), 0},
		{"round robin with subsets", "1", repeat(200, "1 2", "3 4", "5 6", "3 4", "7 8", "5 6"), 0},
		{"subsets that leave it out for long", "1", append(append([]string{"1 2", "3 4", "5 6", "1 2"}, repeat(59, "3 4", "5 6")...), "1 2"), 0},
		{"an overlap, then it is gone", "1", append([]string{"1", "1 2"}, repeat(61, "2")...), 62},
		{"two servers, one of which is taken out", "1 2", append([]string{"1 2"}, repeat(59, "1")...), 0},
		{"one connection leads there already", "1 2", []string{"2", "2", "2"}, 3},
		{"IPv4 written as IPv6", "1", repeat(9, "1"), 0},
	} {
		t.Run(x.what, func(t *testing.T) {
			t.Parallel()
			var h nameHistory
			got := 0
			for i, answer := range x.answers {
				addrs := addrsOf(answer)
				for j, a := range addrs {
					if x.what == "IPv4 written as IPv6" {
						addrs[j] = netip.AddrFrom16(a.As16())
					}
				}
				if _, gone := h.answer(addrs, addrsOf(x.connected)); gone {
					got = i + 1
					break
				}
			}
			if got != x.gone {
				t.Errorf("gone after %d answers, want %d", got, x.gone)
			}
		})
	}
}

// After a switch the old address counts as new again: a switch that is taken back is followed as soon.
func TestNameHistory_SwitchedBack_IsFollowed(t *testing.T) {
	t.Parallel()
	var h nameHistory
	connected := "1"
	follow := func(answers ...string) {
		t.Helper()
		for i, answer := range answers {
			_, gone := h.answer(addrsOf(answer), addrsOf(connected))
			if last := i == len(answers)-1; gone != last {
				t.Fatalf("answer %d of %v: gone: %v", i+1, answers, gone)
			}
		}
		connected = answers[len(answers)-1]
	}
	follow("1", "2", "2", "2")
	follow("2", "1", "1", "1")
	follow("1", "2", "2", "2")
}

// Names are looked up where that helps, and nowhere else.
func TestConfig_WatchedName_IsThatOfOneServer(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		cfg  Config
		want string
	}{
		{Config{Addr: "redis.example:6379"}, "redis.example"},
		{Config{Addr: "127.0.0.1:6379"}, ""},
		{Config{Addr: "[::1]:6379"}, ""},
		{Config{Addr: "/run/redis.sock", Network: "unix"}, ""},
		{Config{Addr: "redis.example:6379", LookupInterval: -1}, ""},
		{Config{Addr: "redis.example:6379", Dialer: new(net.Dialer).DialContext}, ""},
		{Config{Topology: Cluster, Addr: "redis.example:6379"}, ""},
	} {
		cfg := x.cfg.withDefaults()
		if host, ok := cfg.watchedName(); ok != (x.want != "") || ok && host != x.want {
			t.Errorf("%+v: %q, %v", x.cfg.Addr, host, ok)
		}
	}
}
