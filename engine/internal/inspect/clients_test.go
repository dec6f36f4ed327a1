package inspect

import (
	"maps"
	"testing"
)

func TestConnections_List_FindsEnginesByTheEndOfTheName(t *testing.T) {
	t.Parallel()
	list := "id=3 addr=10.0.0.1:5000 laddr=10.0.0.9:6379 fd=8 name=pawl:aa age=1 idle=0\n" +
		"id=4 addr=10.0.0.1:5001 fd=8 name=pawl:aa age=1\n" +
		"id=5 addr=[::1]:7 name=billing:x:bb db=0\n" +
		"id=6 addr=10.0.0.3:1 name= db=0\nid=7 addr=10.0.0.4:1 name=cc\nbroken\n\x00 name=:dd addr="
	got := Connections(list, map[string]bool{"aa": true, "bb": true, "ee": true, "dd": true})
	want := map[string]Connection{"aa": {"10.0.0.1:5000"}, "bb": {"[::1]:7"}, "dd": {""}}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestClientNameFits_OnlyWhatTheServerAccepts(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"pawl": true, "a:b/c-1": true, "!~": true, "order service": false, "é": false, "a\n": false, "\xff": false, "\x7f": false} {
		if got := ClientNameFits(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}
