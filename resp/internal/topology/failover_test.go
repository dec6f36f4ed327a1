package topology

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

// leads is a primary, with the ID of its data, and that of the data that it continues.
func leads(addr, id, before string, attached int) replicationInfo {
	return replicationInfo{addr: addr, primary: true, id: id, previousID: before, attached: attached}
}

// trails is a replica with the data of an ID; linked says whether it gets data from its primary.
func trails(addr, id string, linked bool) replicationInfo {
	return replicationInfo{addr: addr, id: id, linked: linked}
}

// mute has not answered; silent says whether it still may.
func mute(addr string, silent bool) replicationInfo {
	return replicationInfo{addr: addr, err: errors.New("no answer"), silent: silent}
}

// refuses answers with an error.
func refuses(addr string) replicationInfo {
	return replicationInfo{addr: addr, err: &wire.ServerError{Code: "BUSY", Message: "BUSY"}, silent: true}
}

func TestFailoverResolver_Answers_DecideThePrimary(t *testing.T) {
	t.Parallel()
	const undecided = ""
	for name, c := range map[string]struct {
		followed replicationInfo
		all      []replicationInfo
		want     string
		later    string // after leaveAfter
	}{
		"at the start, the only master": {
			all:  []replicationInfo{leads("a", "A", "", 0), trails("b", "A", false), mute("c", false)},
			want: "a", later: "a",
		},
		"at the start, two masters with replicas": {
			all:  []replicationInfo{leads("a", "A", "", 1), leads("b", "B", "", 2)},
			want: undecided, later: "b",
		},
		"at the start, the list of an old primary may be out of date": {
			all:  []replicationInfo{leads("a", "A", "", 1), leads("b", "B", "A", 0)},
			want: undecided, later: "a",
		},
		"at the start, equals": {
			all:  []replicationInfo{leads("a", "A", "", 0), leads("b", "B", "A", 0)},
			want: undecided, later: undecided,
		},
		"at the start, two equals are ahead of a third": {
			all:  []replicationInfo{leads("a", "A", "", 1), leads("b", "B", "", 0), leads("c", "C", "", 1)},
			want: undecided, later: undecided,
		},
		"at the start, a silent one may have as many": {
			all:  []replicationInfo{leads("a", "A", "", 0), mute("b", true)},
			want: undecided, later: "a",
		},
		"at the start, a busy one may have as many": {
			all:  []replicationInfo{leads("a", "A", "", 0), refuses("b")},
			want: undecided, later: "a",
		},
		"at the start, a silent one cannot have as many": {
			all:  []replicationInfo{leads("a", "A", "", 1), mute("b", true), trails("c", "A", true)},
			want: "a", later: "a",
		},
		"at the start, a silent one may have the silent and the replica that names it": {
			all:  []replicationInfo{leads("a", "A", "", 1), mute("b", true), mute("c", true), trails("d", "B", true)},
			want: undecided, later: "a",
		},
		"at the start, a replica follows one that is down": {
			all:  []replicationInfo{leads("a", "A", "", 0), mute("b", false), trails("c", "B", true)},
			want: undecided, later: "a",
		},
		"at the start, no master": {
			all:  []replicationInfo{trails("a", "A", false), trails("b", "A", false)},
			want: undecided, later: undecided,
		},
		"another has more replicas": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{leads("a", "A", "", 1), leads("b", "B", "A", 2)},
			want:     "a", later: "b",
		},
		"two others have more replicas, and as many": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{leads("a", "A", "", 0), leads("b", "B", "A", 1), leads("c", "C", "A", 1)},
			want:     "a", later: "a",
		},
		"equals": {
			followed: leads("b", "B", "X", 0),
			all:      []replicationInfo{leads("a", "A", "X", 0), leads("b", "B", "X", 0)},
			want:     "b", later: "b",
		},
		"equals, and a replica that has not noticed yet": {
			followed: leads("b", "B", "A", 0),
			all:      []replicationInfo{leads("a", "A", "", 0), leads("b", "B", "A", 0), trails("c", "A", true)},
			want:     "b", later: "b",
		},
		"silent": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{mute("a", true), leads("b", "B", "A", 1), trails("c", "B", true)},
			want:     undecided, later: "b",
		},
		"gone": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{mute("a", false), leads("b", "B", "A", 0), trails("c", "A", false)},
			want:     undecided, later: "b",
		},
		"gone, and a replica gets data from it": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{mute("a", false), leads("b", "B", "A", 0), trails("c", "A", true)},
			want:     undecided, later: undecided,
		},
		"gone, and nobody is promoted": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{mute("a", false), trails("b", "A", false), trails("c", "A", true)},
			want:     undecided, later: undecided,
		},
		"gone, and two others are equals": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{mute("a", false), leads("b", "B", "A", 0), leads("c", "C", "A", 0)},
			want:     undecided, later: undecided,
		},
		"gone, and an older one is back": {
			followed: leads("a", "A", "B", 1),
			all:      []replicationInfo{mute("a", false), leads("b", "B", "", 0), trails("c", "A", false)},
			want:     undecided, later: "b",
		},
		"gone, and one that is not configured is promoted": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{mute("a", false), leads("10.0.0.2", "B", "A", 0), trails("b", "A", false)},
			want:     undecided, later: "10.0.0.2",
		},
		"busy, and another has some replicas": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{refuses("a"), leads("b", "B", "A", 1)},
			want:     undecided, later: undecided,
		},
		"busy, and another has more replicas than it had": {
			followed: leads("a", "A", "", 1),
			all:      []replicationInfo{refuses("a"), leads("b", "B", "A", 2)},
			want:     undecided, later: "b",
		},
		"demoted": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{trails("a", "A", false), leads("b", "B", "A", 0), trails("c", "B", true)},
			want:     "b", later: "b",
		},
		"demoted, and a replica that has not noticed yet": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{trails("a", "A", false), leads("b", "B", "A", 0), trails("c", "A", true)},
			want:     undecided, later: "b",
		},
		"demoted, and nobody is promoted": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{trails("a", "A", false), trails("b", "A", false)},
			want:     undecided, later: undecided,
		},
		"demoted, and a silent one may be promoted": {
			followed: leads("a", "A", "", 1),
			all:      []replicationInfo{trails("a", "A", false), leads("b", "O", "", 0), mute("c", true)},
			want:     undecided, later: "b",
		},
		"restarted": {
			followed: leads("a", "A", "", 2),
			all:      []replicationInfo{leads("a", "A2", "", 0), trails("b", "A", false), trails("c", "A", true)},
			want:     "a", later: "a",
		},
		"it has two names": {
			followed: leads("10.0.0.1", "A", "", 1),
			all:      []replicationInfo{leads("a", "A", "", 1), leads("10.0.0.1", "A", "", 1), trails("b", "A", true)},
			want:     "10.0.0.1", later: "10.0.0.1",
		},
		"gone by this name, and alive by another": {
			followed: leads("10.0.0.1", "A", "", 1),
			all:      []replicationInfo{leads("a", "A", "", 0), mute("10.0.0.1", false), leads("b", "B", "", 0)},
			want:     "a", later: "a",
		},
		"its name leads to another": {
			followed: leads("a", "A", "", 1),
			all:      []replicationInfo{leads("a", "B", "", 0), leads("b", "A", "", 0)},
			want:     "b", later: "b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := failoverResolver{opening: leaveAfter, followed: c.followed}
			for _, at := range []struct {
				now  time.Duration
				want string
			}{{0, c.want}, {leaveAfter - 1, c.want}, {leaveAfter, c.later}} {
				got, err := s.choose(c.all, clock.Instant(1).Add(at.now))
				if got.addr != at.want || (err == nil) != (at.want != undecided) {
					t.Errorf("after %v: %q, want %q: %v", at.now, got.addr, at.want, err)
				}
			}
		})
	}
}

// A server that is ahead must have been so all the time.
func TestFailoverResolver_LeadInterrupted_BeginsAgain(t *testing.T) {
	t.Parallel()
	behind := []replicationInfo{leads("a", "A", "", 1), leads("b", "B", "A", 2)}
	for name, between := range map[string][]replicationInfo{
		"it has more": {leads("a", "A", "", 3), leads("b", "B", "A", 2)},
		"it is busy, and the other has as many as it had": {refuses("a"), leads("b", "B", "A", 1)},
	} {
		s := failoverResolver{followed: leads("a", "A", "", 1)}
		now := clock.Instant(1)
		for range 3 {
			for _, refresh := range []struct {
				all  []replicationInfo
				next time.Duration
			}{{behind, leaveAfter - 1}, {between, time.Minute}} { // then it is suspended
				if got, _ := s.choose(refresh.all, now); got.addr == "b" {
					t.Fatalf("%s: %v", name, now)
				}
				now = now.Add(refresh.next)
			}
		}
	}
}

// New gives up after DialTimeout, which may be less than leaveAfter.
func TestFailoverResolver_AtTheStart_DecidesWithinTheOpening(t *testing.T) {
	t.Parallel()
	s := failoverResolver{opening: time.Second, gone: 1}
	all := []replicationInfo{leads("a", "A", "", 0), mute("b", true)}
	for at, want := range map[time.Duration]string{time.Second - 1: "", time.Second: "a"} {
		trial := s
		if got, err := trial.choose(all, clock.Instant(1).Add(at)); got.addr != want {
			t.Errorf("after %v: %q: %v", at, got.addr, err)
		}
	}
}

// So must one be gone that is left for that.
func TestFailoverResolver_GoneAgainAndAgain_IsKept(t *testing.T) {
	t.Parallel()
	s := failoverResolver{followed: leads("a", "A", "", 1)}
	gone := []replicationInfo{mute("a", false), leads("b", "B", "A", 0)}
	now := clock.Instant(1)
	for _, there := range []replicationInfo{leads("a", "A", "", 0), refuses("a"), leads("a", "A2", "", 0)} {
		for _, wait := range []time.Duration{2 * leaveAfter, leaveAfter - 1} { // it was suspended in between
			now = now.Add(wait)
			if got, err := s.choose(gone, now); err == nil {
				t.Fatalf("%q", got.addr)
			}
		}
		if got, _ := s.choose([]replicationInfo{there, gone[1]}, now); got.addr == "b" {
			t.Fatalf("%q", got.addr)
		}
	}
}

// One that has been left, and had no successor, is not waited for because it answers with an error.
func TestFailoverResolver_LeftAndThenBusy_IsLeft(t *testing.T) {
	t.Parallel()
	for name, all := range map[string][]replicationInfo{
		"demoted": {trails("a", "A", false), trails("b", "A", false)}, "gone": {mute("a", false), trails("b", "A", false)},
	} {
		s := failoverResolver{followed: leads("a", "A", "", 2)}
		began := clock.Instant(time.Hour)
		busy := []replicationInfo{refuses("a"), leads("b", "B", "A", 1), leads("c", "C", "", 0)}
		for _, refresh := range []struct {
			at   time.Duration
			all  []replicationInfo
			want string
		}{{0, all, ""}, {leaveAfter - 1, all, ""}, {leaveAfter, all, ""}, {leaveAfter + 1, busy, "b"}} {
			if got, err := s.choose(refresh.all, began.Add(refresh.at)); got.addr != refresh.want {
				t.Errorf("%s, after %v: %q: %v", name, refresh.at, got.addr, err)
			}
		}
		if s = (failoverResolver{followed: leads("a", "A", "", 2)}); name == "demoted" {
			s.choose(all, began)
			if got, err := s.choose(busy, began.Add(leaveAfter-1)); err == nil {
				t.Errorf("%s: %q is followed at once", name, got.addr)
			}
		}
	}
}

// A primary that restarts has no replicas until they are back.
func TestFailoverResolver_RestartedBesideAnotherWithAReplica_IsKeptUntilItsReplicasAreBack(t *testing.T) {
	t.Parallel()
	s := failoverResolver{followed: leads("a", "A", "", 2)}
	for at, a := range []replicationInfo{mute("a", false), mute("a", false), leads("a", "A2", "", 0), leads("a", "A2", "", 0), leads("a", "A2", "", 2)} {
		now := clock.Instant(1).Add(time.Duration(at) * (leaveAfter/2 - 1))
		if got, _ := s.choose([]replicationInfo{a, leads("o", "O", "", 1)}, now); got.addr == "o" {
			t.Fatalf("look %d", at)
		}
	}
}

// What an operator reads when nobody is the primary.
func TestFailoverResolver_Undecided_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]replicationInfo{
		"a, b: it cannot be told who is the primary; make all but one follow that one": {leads("a", "A", "", 0), leads("b", "B", "", 0)},
		"no primary among a, b": {trails("a", "A", false), trails("b", "A", false)},
	} {
		var s failoverResolver
		if _, err := s.choose(all, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}

// The client's own network is out for longer than leaveAfter. When it is back, an old primary that was not told to
// follow is the first to answer: its list is empty, and the primary is the same as before.
func TestFailoverResolver_ClientWasCutOff_FirstAnswerOfAnOldPrimaryIsNotFollowed(t *testing.T) {
	t.Parallel()
	now := clock.Instant(time.Hour)
	s := failoverResolver{opening: leaveAfter, gone: now}
	well := []replicationInfo{leads("a", "A", "O", 2), leads("o", "O", "", 0), trails("b", "A", true), trails("c", "A", true)}
	for range 6 {
		s.choose(well, now)
		now = now.Add(time.Second)
	}
	if s.followed.addr != "a" {
		t.Fatal(s.followed.addr)
	}
	for range 6 {
		s.choose([]replicationInfo{mute("a", true), mute("o", true), mute("b", true), mute("c", true)}, now)
		now = now.Add(time.Second)
	}
	one, err := s.choose([]replicationInfo{mute("a", true), leads("o", "O", "", 0), mute("b", true), mute("c", true)}, now)
	t.Logf("followed is %q, %v", one.addr, err)
	if one.addr == "o" {
		t.Error("it goes to the old primary at the first answer")
	}
	for i := range 8 {
		now = now.Add(time.Second)
		one, err = s.choose(well, now)
		t.Logf("%d s later, all answer: %q %v", i+1, one.addr, err)
	}
}

// The client alone cannot reach the primary, whose replicas say that they get data from it.
func TestFailoverResolver_ReplicasHearFromThePrimary_OldPrimaryIsNotFollowed(t *testing.T) {
	t.Parallel()
	now := clock.Instant(time.Hour)
	s := failoverResolver{followed: leads("a", "A", "O", 2)}
	all := []replicationInfo{mute("a", true), leads("o", "O", "", 0), trails("b", "A", true), trails("c", "A", true)}
	for range 6 {
		s.choose(all, now)
		now = now.Add(time.Second)
	}
	if s.followed.addr == "o" {
		t.Error("both replicas hear from a, and the client follows o")
	}
}
