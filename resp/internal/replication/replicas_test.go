package replication

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// listOf is the list of replicas in a primary's answer to ROLE.
func listOf(t *testing.T, addrs ...string) wire.Value {
	t.Helper()
	v, _, err := new(wire.Decoder).Decode([]byte(primaryReply(addrs...)))
	if err != nil {
		t.Fatal(err)
	}
	return attachedTo(v)
}

// A connection that its replica has left, and the primary has yet to give up.
func TestDistinct_ReplicaListedTwice_CountsOnce(t *testing.T) {
	t.Parallel()
	many := []string{}
	for i := range 40 {
		many = append(many, fmt.Sprint("a:", i))
	}
	for _, test := range []struct {
		addrs []string
		want  int
	}{
		{nil, 0}, {[]string{"a:1"}, 1}, {[]string{"a:1", "a:1"}, 1},
		{[]string{"a:1", "b:1", "a:2", "a:1"}, 3}, {many, 40},
	} {
		if got := distinct(listOf(t, test.addrs...)); got != test.want {
			t.Errorf("%v: %d, want %d", test.addrs, got, test.want)
		}
	}
}

func TestNewReplicas_SeveralSources_TheMostCounts(t *testing.T) {
	t.Parallel()
	three := groupOf(t, "p:1", "a:1", "b:1")
	for name, c := range map[string]struct {
		attached []string
		seen     int
		group    *topology.Group
		want     replicas
	}{
		"all are there":                 {[]string{"a:1", "b:1"}, 2, three, replicas{attached: 2, total: 2}},
		"one is away":                   {[]string{"b:1"}, 2, three, replicas{attached: 1, total: 2, away: []string{"a:1"}}},
		"one is away from the start":    {[]string{"b:1"}, 1, three, replicas{attached: 1, total: 2, away: []string{"a:1"}}},
		"all are away":                  {nil, 0, three, replicas{attached: 0, total: 2, away: []string{"a:1", "b:1"}}},
		"one is new":                    {[]string{"a:1", "b:1", "c:1"}, 3, three, replicas{attached: 3, total: 3}},
		"one was new, and has left":     {[]string{"a:1", "b:1"}, 3, three, replicas{attached: 2, total: 3}},
		"one has another name":          {[]string{"gateway:1"}, 1, three, replicas{attached: 1, total: 2}},
		"nobody keeps a list":           {[]string{"a:1"}, 1, new(topology.Group), replicas{attached: 1, total: 1}},
		"nobody keeps it, and one left": {nil, 1, new(topology.Group), replicas{attached: 0, total: 1}},
	} {
		if got := newReplicas(listOf(t, c.attached...), c.seen, c.group, "p:1"); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// "All" is an error where it cannot be told how many that is, and a number is not.
func TestReplicas_Unknown_SayWhy(t *testing.T) {
	t.Parallel()
	unlisted, refused := errors.New("not listed"), wire.NewServerError([]byte("NOPERM no ROLE"))
	value := func(text string) request.Reply {
		v, _, err := new(wire.Decoder).Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return request.Reply{Value: v}
	}
	listed := func(addr string) (*topology.Group, error) { return groupOf(t, addr, "a:1", "b:1"), nil }
	nobody := func(string) (*topology.Group, error) { return nil, unlisted }
	for name, c := range map[string]struct {
		role  request.Reply
		group func(string) (*topology.Group, error)
		want  replicas
		err   string
	}{
		"listed":                {value(primaryReply("a:1")), listed, replicas{attached: 1, total: 2, away: []string{"b:1"}}, ""},
		"one that left, listed": {value(primaryReply()), listed, replicas{total: 2, away: []string{"a:1", "b:1"}}, ""},
		"not listed":            {value(primaryReply("a:1")), nobody, replicas{attached: 1, total: 1}, "not listed"},
		"ROLE is refused":       {request.Reply{Err: refused}, listed, replicas{attached: -1}, "NOPERM"},
		"it is no primary":      {value("*1\r\n$5\r\nslave\r\n"), listed, replicas{attached: -1}, "slave"},
	} {
		got := New(Config{Addr: "p:1", HighWater: new(HighWater), Group: c.group}).readRole(c.role)
		if (got.err == nil) != (c.err == "") || got.err != nil && !strings.Contains(got.err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, got.err, c.err)
		}
		if got.err = nil; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// groupOf is a group whose first server is the primary.
func groupOf(t *testing.T, primary string, replicas ...string) *topology.Group {
	t.Helper()
	g, err := topology.Configured(primary, replicas).At(primary)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestReplicas_Evaluate_WaitIsJudged(t *testing.T) {
	t.Parallel()
	lost, unknown := errors.New("lost"), errors.New("unknown")
	two := replicas{attached: 2, total: 2}
	oneAway := replicas{attached: 1, total: 2, away: []string{"a:1"}}
	nobody := replicas{}
	uncounted := replicas{attached: 2, total: 2, err: unknown}
	unasked := replicas{attached: -1, err: unknown}
	for name, c := range map[string]struct {
		there        replicas
		wants        request.Acks
		asked, acked int
		failed       error
		want         request.Ack
		again        bool
	}{
		"one is enough":                            {two, 1, 1, 1, nil, request.Ack{Acked: 1, Wanted: 1}, false},
		"more than were asked for":                 {two, 1, 2, 2, nil, request.Ack{Acked: 2, Wanted: 1}, false},
		"one is too few of two":                    {two, 2, 2, 1, nil, request.Ack{Acked: 1, Wanted: 2}, false},
		"all of two":                               {two, request.AllReplicas, 2, 2, nil, request.Ack{Acked: 2, Wanted: 2}, false},
		"too few were asked for":                   {two, request.AllReplicas, 1, 1, nil, request.Ack{}, true},
		"too few were asked for, and all answered": {two, request.AllReplicas, 1, 2, nil, request.Ack{Acked: 2, Wanted: 2}, false},
		"a majority of two is both":                {two, request.MajorityOfReplicas, 2, 1, nil, request.Ack{Acked: 1, Wanted: 2}, false},
		"nobody was asked for":                     {two, 1, 0, 0, nil, request.Ack{}, true},
		"one of all is away":                       {oneAway, request.AllReplicas, 1, 1, nil, request.Ack{Acked: 1, Wanted: 2, Away: []string{"a:1"}}, false},
		"one is away, and one was wanted":          {oneAway, 1, 1, 1, nil, request.Ack{Acked: 1, Wanted: 1}, false},
		"no more are there to ask for":             {oneAway, 2, 1, 0, nil, request.Ack{Acked: 0, Wanted: 2, Away: []string{"a:1"}}, false},
		"nobody is there: all is at least one":     {nobody, request.AllReplicas, 0, 0, nil, request.Ack{Wanted: 1}, false},
		"nobody is there: a majority, too":         {nobody, request.MajorityOfReplicas, 0, 0, nil, request.Ack{Wanted: 1}, false},
		"all, and nobody knows how many":           {uncounted, request.AllReplicas, 2, 2, nil, request.Ack{Wanted: 2, Err: unknown}, false},
		"a number does not need to know":           {uncounted, 2, 2, 2, nil, request.Ack{Acked: 2, Wanted: 2}, false},
		"a number, and ROLE was refused":           {unasked, 2, 1, 1, nil, request.Ack{}, true},
		"the connection was lost":                  {two, 1, 1, 0, lost, request.Ack{Wanted: 1, Err: lost}, false},
		"it was lost, and one is away":             {oneAway, request.AllReplicas, 1, 0, lost, request.Ack{Wanted: 2, Err: lost, Away: []string{"a:1"}}, false},
		"none wanted":                              {two, 0, 0, 0, nil, request.Ack{}, false},
	} {
		got, again := c.there.evaluate(c.wants, c.asked, c.acked, c.failed)
		if !reflect.DeepEqual(got, c.want) || again != c.again {
			t.Errorf("%s: %+v, again: %v; want %+v, %v", name, got, again, c.want, c.again)
		}
	}
}

// A WAIT for more than are there would last until its time is over.
func TestReplicas_WaitFor_IsAtMostTheAttached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		attached, replicas int
		wants              request.Acks
		worth              int
	}{
		{2, 3, request.AllReplicas, 2}, {3, 3, request.AllReplicas, 3}, {0, 3, request.AllReplicas, 0}, {2, 3, request.MajorityOfReplicas, 2}, {3, 3, request.MajorityOfReplicas, 2},
		{2, 2, 1, 1}, {2, 2, 5, 2}, {0, 0, 1, 0},
		{-1, 0, request.AllReplicas, 0}, {-1, 0, request.MajorityOfReplicas, 0}, {-1, 0, 2, 2}, // ROLE has yet to be answered
	} {
		if got := (replicas{attached: c.attached, total: c.replicas}).waitFor(c.wants); got != c.worth {
			t.Errorf("%d wanted, %d of %d attached: %d are worth waiting for, want %d", c.wants, c.attached, c.replicas, got, c.worth)
		}
	}
}
