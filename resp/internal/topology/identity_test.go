package topology

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

// journal is an Identity with what it logs, and where it asked for a search.
type journal struct {
	*Identity
	log   *bytes.Buffer
	looks []string
}

func newJournal(k Kind, configured ...string) *journal {
	j := &journal{log: new(bytes.Buffer)}
	j.Identity = NewIdentity(k, configured, clock.System(), slog.New(slog.NewTextHandler(j.log, nil)))
	j.refresh = func(hint string) { j.looks = append(j.looks, hint) }
	return j
}

// lines counts those that say a text.
func (j *journal) lines(text string) int { return strings.Count(j.log.String(), text) }

// search is one that finds these layouts, by the address that tells, and believes the good ones.
func (j *journal) search(layouts ...[2]string) {
	j.began()
	for _, l := range layouts {
		if j.believes(l[0], strings.Fields(l[1])) {
			j.Believe(strings.Fields(l[1])...)
		}
	}
	j.ended()
}

func TestIdentity_NothingIsKnown_EverybodyBelongs(t *testing.T) {
	t.Parallel()
	j := newJournal(Cluster, "seed")
	if !j.Shares("a") || !j.Shares() || !j.believes("elsewhere", []string{"a"}) {
		t.Error("somebody is refused though nothing is known")
	}
	if j.knows([]string{"a"}) {
		t.Error("an id is known though nothing is")
	}
}

func TestIdentity_Believes_SharedIDOrConfiguredAddress(t *testing.T) {
	t.Parallel()
	j := newJournal(Cluster, "seed")
	j.Believe("a", "b")
	for _, c := range []struct {
		from, ids string
		good      bool
	}{
		{"n1", "b c", true}, {"n1", "c d", false}, {"n1", "", false}, {"seed", "c d", true}, {"seed", "", true},
	} {
		if got := j.believes(c.from, strings.Fields(c.ids)); got != c.good {
			t.Errorf("%v: %t", c, got)
		}
	}
	j.Believe("b", "c")
	if j.Shares("a") || !j.Shares("c") {
		t.Error("the ids are not those of the latest layout")
	}
	j.Believe()
	if !j.Shares("z") {
		t.Error("after a layout without ids something is known")
	}
}

func TestIdentity_ForeignServers_AreReportedOnceEach(t *testing.T) {
	t.Parallel()
	j := newJournal(Cluster, "seed")
	j.Believe("a")
	for range 10 {
		j.search([2]string{"x", "f"}, [2]string{"y", "g"}, [2]string{"seed", "a"})
	}
	if n := j.lines("level=WARN"); n != 2 || !j.foreign("x") || !j.foreign("y") || j.foreign("seed") {
		t.Errorf("%d lines:\n%s", n, j.log)
	}
	j.search([2]string{"x", "a b"})
	if j.foreign("x") {
		t.Error("it is foreign still")
	}
	j.search([2]string{"x", "f"})
	if n := j.lines("level=WARN"); n != 3 {
		t.Errorf("%d lines:\n%s", n, j.log)
	}
}

// The whole deployment is set up anew, and a node that was learnt answers before the configured
// one: nobody is alarmed.
func TestIdentity_DoubtThatTheSameSearchDispels_IsNotReported(t *testing.T) {
	t.Parallel()
	j := newJournal(Sentinel, "seed")
	j.Believe("a")
	j.search([2]string{"x", "b"}, [2]string{"seed", "b"})
	if n := j.lines("level=WARN"); n != 0 || j.foreign("x") {
		t.Errorf("%d lines:\n%s", n, j.log)
	}
}

// A connection is made while a search is under way that has asked already.
func TestIdentity_DoubtDuringASearch_IsSettledByTheNext(t *testing.T) {
	t.Parallel()
	j := newJournal(Sentinel, "seed")
	j.Believe("a")
	info := wire.Value{Kind: wire.KindBulk, Bytes: []byte("role:master\r\nmaster_replid:b\r\n")}
	j.began()
	if err := j.Meet("p", info, nil); !errors.Is(err, ErrForeign) || !errors.As(err, new(*NotYet)) {
		t.Error(err)
	}
	j.ended()
	if j.lines("level=WARN") != 0 || len(j.looks) != 1 || j.looks[0] != "" {
		t.Errorf("looks: %q\n%s", j.looks, j.log)
	}
	j.search([2]string{"seed", "b a"})
	if err := j.Meet("p", info, nil); err != nil || j.lines("level=WARN") != 0 {
		t.Errorf("%v\n%s", err, j.log)
	}
}

func TestIdentity_ForeignAddresses_AreABoundedNumberAndForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(Cluster, "seed")
		j.Believe("a")
		for round := range 3 {
			j.began()
			for i := range 10 * maxDoubts {
				j.believes(fmt.Sprint("n", i), []string{"f"})
			}
			j.ended()
			if n := len(j.mu.doubts); n != maxDoubts || j.lines("level=WARN") != maxDoubts {
				t.Errorf("round %d: %d are remembered, %d lines", round, n, j.lines("level=WARN"))
			}
		}
		time.Sleep(doubtFor + 1)
		j.search()
		if n := len(j.mu.doubts); n != 0 {
			t.Errorf("%d are remembered", n)
		}
	})
}

func TestIdentity_Meet_NodeWhoseLayoutShares(t *testing.T) {
	t.Parallel()
	node := func(id string) string {
		return "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n" + bulk("h") + ":1\r\n" + bulk(id)
	}
	const plain = "-ERR This instance has cluster support disabled\r\n"
	for name, c := range map[string]struct {
		answer, slots string
		want          error  // nil, or that of a foreign one
		looks         string // where a search was asked for
		log           string
	}{
		"one of the layout":                {bulk("a"), "", nil, "", ""},
		"new, and knows one":               {bulk("n"), node("a"), nil, "n:1", ""},
		"of another cluster":               {bulk("n"), node("f"), ErrForeign, "n:1", ""},
		"alone, without slots":             {bulk("n"), "*0\r\n", ErrForeign, "n:1", ""},
		"that may not tell its layout":     {bulk("n"), "-NOPERM no\r\n", nil, "", "NOPERM"},
		"whose cluster is down":            {bulk("n"), "-CLUSTERDOWN Hash slot not served\r\n", new(wire.ServerError), "", ""},
		"that may not tell its id":         {"-NOPERM no\r\n", "", nil, "", "NOPERM"},
		"that is a proxy":                  {"-ERR unsupported\r\n", "", nil, "", "not checked"},
		"that is a proxy, and says OK":     {"+OK\r\n", node("a"), nil, "n:1", ""},
		"that is none, but a plain server": {plain, plain, ErrForeign, "n:1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJournal(Cluster, "seed")
			j.Believe("a")
			err := j.Meet("n:1", decoded(t, c.answer), func(question ...string) (wire.Value, error) {
				if c.slots == "" {
					t.Error("it was asked more")
				}
				return decoded(t, c.slots), nil
			})
			if _, other := c.want.(*wire.ServerError); !errors.Is(err, c.want) && !(other && errors.As(err, new(*wire.ServerError))) {
				t.Error(err)
			}
			if got := strings.Join(j.looks, " "); got != c.looks {
				t.Errorf("looked at %q", got)
			}
			if c.log != "" && j.lines(c.log) != 1 || c.log == "" && j.log.Len() > 0 {
				t.Errorf("%s", j.log)
			}
		})
	}
}

// A server of another make has no replication ID. It is none of those that have.
func TestIdentity_Meet_PrimaryWithoutReplicationIDs(t *testing.T) {
	t.Parallel()
	j := newJournal(Sentinel, "seed")
	bare := decoded(t, bulk("role:master\r\n"))
	if err := j.Meet("p:1", bare, nil); err != nil {
		t.Errorf("where nothing is known: %v", err)
	}
	j.Believe("a")
	if err := j.Meet("p:1", bare, nil); !errors.Is(err, ErrForeign) {
		t.Errorf("where ids are known: %v", err)
	}
}

// Connections are made while searches believe layouts.
func TestIdentity_IsUsedByManyAtATime(t *testing.T) {
	t.Parallel()
	j := newJournal(Replicas, "seed")
	j.refresh = func(string) {}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 200 {
				info := fmt.Sprintf("role:master\r\nmaster_replid:%d\r\n", (i+n)%3)
				_ = j.Meet(fmt.Sprint("p", n%5), wire.Value{Kind: wire.KindBulk, Bytes: []byte(info)}, nil)
				j.foreign("p1")
			}
		})
	}
	for n := range 200 {
		j.search([2]string{"seed", fmt.Sprint(n % 3)}, [2]string{"x", "f"})
	}
	all.Wait()
}

func TestIdentity_None_ChecksNothing(t *testing.T) {
	t.Parallel()
	if err := (*Identity)(nil).Meet("a:1", wire.Value{}, nil); err != nil {
		t.Error(err)
	}
}

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
