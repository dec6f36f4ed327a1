package topology

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/resp/wire"
)

// decoded is one reply as it goes on the wire.
func decoded(t *testing.T, text string) wire.Value {
	t.Helper()
	v, n, err := new(wire.Decoder).Decode([]byte(text))
	if err != nil || n != len(text) {
		t.Fatalf("%q: %d bytes read, %v", text, n, err)
	}
	return v
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func TestReadIdentity_WhatServersSay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   Kind
		answer string
		want   []string
	}{
		"a node of a cluster":            {Cluster, bulk("abc"), []string{"abc"}},
		"a refusal":                      {Cluster, "-NOPERM no\r\n", nil},
		"a proxy that says something":    {Cluster, "+OK\r\n", nil},
		"an empty id":                    {Cluster, "$0\r\n\r\n", nil},
		"nil":                            {Cluster, "$-1\r\n", nil},
		"a primary":                      {Sentinel, bulk("role:master\r\nmaster_replid:A\r\nmaster_replid2:000\r\n"), []string{"A"}},
		"a primary that was promoted":    {Replicas, bulk("role:master\r\nmaster_replid:B\r\nmaster_replid2:A\r\n"), []string{"B", "A"}},
		"a primary of another make":      {Sentinel, bulk("role:master\r\nconnected_slaves:0\r\n"), nil},
		"a server that refuses to tell":  {Replicas, "-NOPERM no\r\n", nil},
		"an answer that is not of INFO":  {Replicas, "*0\r\n", nil},
		"INFO that is cut in the middle": {Sentinel, bulk("role:master\r\nmaster_rep"), nil},
	} {
		if got := ReadIdentity(c.kind, decoded(t, c.answer)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestNodeIDs_PrimariesAndReplicasOnce(t *testing.T) {
	t.Parallel()
	node := func(id string) string { return "*3\r\n" + bulk("h") + ":1\r\n" + bulk(id) }
	v := decoded(t, "*3\r\n"+
		"*4\r\n:0\r\n:5\r\n"+node("a")+node("b")+
		"*3\r\n:6\r\n:9\r\n"+node("a")+
		"*3\r\n:10\r\n:11\r\n*2\r\n"+bulk("h")+":1\r\n")
	if got := nodeIDs(v); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
	if got := nodeIDs(decoded(t, "*2\r\n:1\r\n*1\r\n:2\r\n")); got != nil {
		t.Errorf("of nonsense: %q", got)
	}
}
