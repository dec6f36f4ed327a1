package topology

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// leads is a primary, with the ID of its reign, and that of the one that it continues.
func leads(addr, id, before string, attached int) standing {
	return standing{addr: addr, primary: true, id: id, before: before, attached: attached}
}

// trails is a replica with the data of a reign; linked says whether it hears from its primary.
func trails(addr, id string, linked bool) standing {
	return standing{addr: addr, id: id, linked: linked}
}

// mute has not answered; open says whether it still may.
func mute(addr string, open bool) standing {
	return standing{addr: addr, err: errors.New("no answer"), open: open}
}

func TestSuccession(t *testing.T) {
	t.Parallel()
	const undecided = ""
	for name, c := range map[string]struct {
		present standing // a is configured, and so are b and c
		all     []standing
		want    string
		later   string // after aheadFor, if that is another
	}{
		"most replicas": {
			all:  []standing{leads("a", "A", "", 0), leads("b", "B", "", 1), trails("c", "B", true)},
			want: "b", later: "b",
		},
		"both have replicas": {
			all:  []standing{leads("a", "A", "", 1), leads("b", "B", "", 2)},
			want: undecided, later: "b",
		},
		"both have replicas, and one is present": {
			present: leads("a", "A", "", 2),
			all:     []standing{leads("a", "A", "", 1), leads("b", "B", "A", 2)},
			want:    "a", later: "b",
		},
		"the present one has lost its replicas to another": {
			present: leads("a", "A", "", 2),
			all:     []standing{leads("a", "A", "", 0), leads("b", "B", "A", 1), trails("c", "B", true)},
			want:    "a", later: "b",
		},
		"the list of an older one may be out of date": {
			all:  []standing{leads("a", "A", "", 1), leads("b", "B", "A", 0)},
			want: undecided, later: "a",
		},
		"equals, and one continues the data of the other": {
			all:  []standing{leads("a", "A", "", 0), leads("b", "B", "A", 0), mute("c", false)},
			want: undecided, later: undecided,
		},
		"equals, and one continues the data of the present one, which is there": {
			present: leads("a", "A", "", 0),
			all:     []standing{leads("a", "A", "", 0), leads("b", "B", "A", 0), mute("c", false)},
			want:    "a", later: "a",
		},
		"equals that have nothing to do with each other": {
			all:  []standing{leads("a", "A", "X", 0), leads("b", "B", "X", 0)},
			want: undecided, later: undecided,
		},
		"equals, and one is present": {
			present: leads("b", "B", "X", 0),
			all:     []standing{leads("a", "A", "X", 0), leads("b", "B", "X", 0)},
			want:    "b", later: "b",
		},
		"one that has lost a replica, which has not noticed yet": {
			present: leads("b", "B", "A", 0),
			all:     []standing{leads("a", "A", "", 0), leads("b", "B", "A", 0), trails("c", "A", true)},
			want:    "b", later: "b",
		},
		"another may have as many": {
			all:  []standing{leads("a", "A", "", 0), mute("b", true)},
			want: undecided, later: undecided,
		},
		"no other can have as many": {
			all:  []standing{leads("a", "A", "", 1), mute("b", true), trails("c", "A", true)},
			want: "a", later: "a",
		},
		"replicas follow one that does not answer": {
			all:  []standing{leads("a", "A", "", 0), mute("b", false), trails("c", "B", true)},
			want: undecided, later: undecided,
		},
		"the present one is silent, and was promoted away": {
			present: leads("a", "A", "", 2),
			all:     []standing{mute("a", true), leads("b", "B", "A", 1), trails("c", "B", true)},
			want:    "b", later: "b",
		},
		"the present one is silent, and its replica is still with it": {
			present: leads("a", "A", "", 2),
			all:     []standing{mute("a", true), leads("b", "B", "A", 0), trails("c", "A", false)},
			want:    undecided, later: undecided,
		},
		"the present one is silent, and has replicas that cannot be reached": {
			present: leads("a", "A", "", 2),
			all:     []standing{mute("a", true), leads("b", "O", "", 1), trails("c", "O", true)},
			want:    undecided, later: undecided,
		},
		"the present one is gone, and its replica is promoted": {
			present: leads("a", "A", "", 2),
			all:     []standing{mute("a", false), leads("b", "B", "A", 0), trails("c", "A", false)},
			want:    "b", later: "b",
		},
		"the present one is gone, and another replica has not noticed yet": {
			present: leads("a", "A", "", 2),
			all:     []standing{mute("a", false), leads("b", "B", "A", 0), trails("c", "A", true)},
			want:    undecided, later: undecided,
		},
		"the present one is gone, and an older one is back": {
			present: leads("a", "A", "B", 1),
			all:     []standing{mute("a", false), leads("b", "B", "", 0), trails("c", "A", false)},
			want:    undecided, later: undecided,
		},
		"the present one is gone, and so is all that had its data": {
			present: leads("a", "A", "B", 1),
			all:     []standing{mute("a", false), leads("b", "B", "", 0), mute("c", false)},
			want:    undecided, later: "b",
		},
		"the present one has been demoted, and its chained replica still follows it": {
			present: leads("a", "A", "", 2),
			all:     []standing{trails("a", "A", false), leads("b", "B", "A", 0), trails("c", "A", true)},
			want:    "b", later: "b",
		},
		"the present one has been demoted, and an older one is back": {
			present: leads("a", "A", "", 1),
			all:     []standing{trails("a", "A", false), leads("b", "O", "", 0), mute("c", false)},
			want:    undecided, later: undecided,
		},
		"the present one has restarted": {
			present: leads("a", "A", "", 2),
			all:     []standing{leads("a", "A2", "", 0), trails("b", "A", false), trails("c", "A", true)},
			want:    "a", later: "a",
		},
		"one server has two names": {
			present: leads("10.0.0.1", "A", "", 1),
			all:     []standing{leads("a", "A", "", 1), leads("10.0.0.1", "A", "", 1), trails("b", "A", true)},
			want:    "a", later: "a",
		},
		"one server has two names, both configured": {
			present: leads("b", "A", "", 1),
			all:     []standing{leads("a", "A", "", 1), leads("b", "A", "", 1), trails("c", "A", true)},
			want:    "b", later: "b",
		},
		"the present one is gone by this name, and alive by another": {
			present: leads("10.0.0.1", "A", "", 1),
			all:     []standing{leads("a", "A", "", 1), mute("10.0.0.1", false), trails("b", "A", true)},
			want:    "a", later: "a",
		},
		"the present one goes on by another name, beside an equal": {
			present: leads("10.0.0.1", "A", "", 1),
			all:     []standing{leads("a", "A", "", 0), mute("10.0.0.1", false), leads("b", "B", "", 0)},
			want:    "a", later: "a",
		},
		"one that is not configured is promoted": {
			present: leads("a", "A", "", 2),
			all:     []standing{mute("a", false), leads("10.0.0.2", "B", "A", 0), trails("b", "A", false)},
			want:    "10.0.0.2", later: "10.0.0.2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := succession{configured: []string{"a", "b", "c"}, opening: aheadFor, present: c.present, seen: 1}
			for _, at := range []struct {
				now  time.Duration
				want string
			}{{0, c.want}, {aheadFor - 1, c.want}, {aheadFor, c.later}} {
				got, err := s.choose(c.all, clock.Instant(1).Add(at.now))
				if got.addr != at.want || (err == nil) != (at.want != undecided) {
					t.Errorf("after %v: %q, want %q: %v", at.now, got.addr, at.want, err)
				}
			}
		})
	}
}

// A server that is ahead must have been so all the time.
func TestLeadThatWasInterruptedBeginsAgain(t *testing.T) {
	t.Parallel()
	s := succession{configured: []string{"a", "b"}, present: leads("a", "A", "", 1)}
	behind := []standing{leads("a", "A", "", 1), leads("b", "B", "A", 2)}
	now := clock.Instant(1)
	for _, all := range [][]standing{behind, {leads("a", "A", "", 3), leads("b", "B", "A", 2)}, behind} {
		if got, err := s.choose(all, now); got.addr != "a" {
			t.Fatalf("%q: %v", got.addr, err)
		}
		now = now.Add(aheadFor - 1)
	}
}

// What an operator reads when nobody is the primary.
func TestUndecidedSuccessionSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]standing{
		"a, b: it cannot be told who is the primary; make all but one follow that one": {leads("a", "A", "", 0), leads("b", "B", "", 0)},
		"no primary among a, b":                         {trails("a", "A", false), trails("b", "A", false)},
		"replicas follow a server that does not answer": {trails("a", "A", true), trails("b", "A", true)},
	} {
		s := succession{configured: []string{"a", "b"}}
		if _, err := s.choose(all, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}
