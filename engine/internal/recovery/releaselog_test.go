package recovery

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// note has a release answered by the server of its name.
func (l *lab) note(name string) {
	r := &lock.Entry{Name: name, Route: l.Route(name)}
	now := l.clock.Now()
	l.v.Released(r, kind.Spin, lock.ServerID(l.ServerOf(r.Route)), 5, now, now.Add(time.Minute))
}

// wantRemembered fails the test unless so many releases of so many servers are.
func (l *lab) wantRemembered(servers, releases int) {
	l.t.Helper()
	if v := l.v.View(); v.Servers != servers || v.Releases != releases {
		l.t.Errorf("%d releases of %d servers are remembered, want %d of %d", v.Releases, v.Servers, releases, servers)
	}
}

func TestReleasesAreRememberedForAMoment(t *testing.T) {
	t.Parallel()
	l := newLab(t, RememberFor)
	note := func(n int, at clock.Instant) {
		for range n {
			l.v.Note(1, 'a', Release{Name: "a", At: at})
		}
	}
	now := l.clock.Now()
	note(rememberMost+10*full, now)
	if v := l.v.View(); v.Servers != 1 || v.Releases < rememberMost-full || v.Releases > rememberMost+full {
		t.Errorf("%d releases of %d servers are remembered", v.Releases, v.Servers)
	}
	note(full, now.Add(RememberFor+time.Second))
	if v := l.v.View(); v.Releases > 2*full {
		t.Errorf("%d releases are remembered, most of them old", v.Releases)
	}
}

func TestNothingIsRememberedOfAServerThatNothingReplaces(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.note("a1")
	l.v.Note(7, 'a', Release{Name: "a2"})
	l.wantRemembered(0, 0)
	if l.v.ServerOf('a') != 0 {
		t.Error("nobody needs to know the server")
	}
	l.wantRest()
}

// The last user leaves nothing; while the server is away nothing is forgotten.
func TestServersAreForgottenWhileTheyAreThere(t *testing.T) {
	t.Parallel()
	l := newLab(t, 10*time.Second)
	l.note("a1")
	l.note("b1")
	l.wantRemembered(2, 2)
	l.lanes['a'].up = false
	l.advance(9 * time.Second)
	l.note("b2")
	l.advance(time.Second)
	l.wantRemembered(2, 3)
	l.advance(9 * time.Second)
	l.wantRemembered(1, 1)
	l.advance(time.Hour)
	l.wantRemembered(1, 1)
	l.lanes['a'].up = true
	l.advance(time.Second)
	l.wantRemembered(0, 0)
	l.wantRest()
}

// The server of some names is replaced: their releases go to the successor, those of others
// stay.
func TestASuccessorLearnsOfReleases(t *testing.T) {
	t.Parallel()
	l := newLab(t, 10*time.Second)
	l.lanes['c'] = l.lanes['a']
	for _, name := range []string{"a1", "c1", "a2", "b1"} {
		l.note(name)
		l.advance(time.Second)
	}
	l.lanes['a'] = &labLane{up: true, server: 3}
	l.v.Rerouted()
	l.wantRemembered(2, 2)
	l.advance(recheckAfter)
	if got := l.sent(); got != "a2 a1" {
		t.Errorf("%q were sent", got)
	}
	if n := len(l.timers); n != 2 {
		t.Errorf("%d timers are armed for two servers", n)
	}
	// What is remembered is all of it.
	now := l.clock.Now()
	l.note("a3")
	want := Release{Name: "a3", ID: 5, At: now, End: now.Add(time.Minute), Kind: kind.Spin}
	if got := *l.v.released.mu.servers[3].newest(); got != want {
		t.Errorf("%+v is remembered, want %+v", got, want)
	}
	// Again, with nothing changed.
	l.v.Rerouted()
	l.wantRemembered(3, 3)
	l.advance(recheckAfter)
	if got := l.sent(); got != "" {
		t.Errorf("%q were sent", got)
	}
	l.advance(time.Minute)
	l.wantRemembered(0, 0)
}

// The routes have changed while the release was out.
func TestAReleaseOfAServerThatIsGoneIsSentAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, 10*time.Second)
	l.v.Note(9, 'a', Release{Name: "a1", At: l.clock.Now()})
	l.wantRemembered(0, 0)
	l.advance(recheckAfter)
	if len(l.out) != 1 {
		t.Fatalf("%d were sent", len(l.out))
	}
	l.out[0].Complete(integer(script.Done))
	l.wantRemembered(1, 1) // of the successor, which may be replaced, too
	if at := l.v.released.mu.servers[1].newest().At; at != l.clock.Now() {
		t.Errorf("it counts from %v", at)
	}
	l.lanes['a'] = &labLane{up: true, server: 4}
	l.v.Rerouted()
	l.advance(recheckAfter)
	if got := l.sent(); got != "a1 a1" { // the first, and this one
		t.Errorf("%q were sent", got)
	}
}

func integer(n int64) resp.Reply {
	return resp.Reply{Value: resp.Value{Kind: wire.KindInt, Int: n}}
}

// What an answer has done; decide has the table.
func TestAnswersToARepeatedRelease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reply resp.Reply
		again time.Duration // it is sent then; 0: not at all
		kept  int           // releases that are remembered
	}{
		"released":             {integer(script.Done), 0, 1},
		"it had heard":         {integer(script.NotThere), 0, 0},
		"refused for now":      {resp.Reply{Err: verdict(lock.RetryLater)}, ResendAfter, 0},
		"refused for good":     {resp.Reply{Err: verdict(lock.Refused)}, 0, 0},
		"no answer":            {resp.Reply{Err: verdict(lock.Unknown)}, recheckAfter, 0},
		"not sent after all":   {resp.Reply{Err: verdict(lock.NotSent)}, recheckAfter, 0},
		"the client is closed": {resp.Reply{Err: resp.NotSent(resp.ErrClosed)}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, time.Minute)
			l.v.Resend([]Release{{Name: "a1"}}, 0)
			l.advance(recheckAfter)
			first := l.out[0]
			l.sent()
			first.Complete(test.reply)
			l.wantRemembered(test.kept, test.kept)
			if test.again == 0 {
				l.advance(time.Second)
				if got := l.sent(); got != "" || len(l.v.mu.lanes) != 0 {
					t.Errorf("%q was sent again; %d command_conns", got, len(l.v.mu.lanes))
				}
				return
			}
			l.advance(test.again - 1)
			if got := l.sent(); got != "" {
				t.Errorf("%q was sent again too soon", got)
			}
			l.advance(1)
			if got := l.sent(); got != "a1" {
				t.Errorf("%q was sent again", got)
			}
		})
	}
}

// A lane that takes nothing is left alone for a moment, though it says that it is up.
func TestALaneThatTakesNoReleaseIsNotAskedForTheOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	l.refuse = verdict(lock.LaneFull)
	l.v.Resend([]Release{{Name: "a1"}, {Name: "a2"}}, 0)
	l.advance(10 * recheckAfter)
	v := l.v.View()
	if len(v.Lanes) != 1 || v.Lanes[0].Again != 2 || v.Lanes[0].Out != 0 || !v.Lanes[0].Kicked {
		t.Fatalf("%+v", v.Lanes)
	}
	l.refuse = nil
	l.advance(recheckAfter)
	if got := l.sent(); len(got) != len("a1 a2") {
		t.Errorf("%q were sent", got)
	}
}

// A release carries what its MinHold has left when it is sent.
func TestARepeatedReleaseIsEncodedWithTheRest(t *testing.T) {
	t.Parallel()
	l := newLab(t, time.Minute)
	l.v.Resend([]Release{{Name: "a1", End: l.clock.Now().Add(recheckAfter + time.Second)}, {Name: "b1"}}, 0)
	l.advance(recheckAfter)
	var got []string
	for _, a := range l.out {
		got = append(got, string(a.AppendCommand(nil, resp.ScriptForm(0))))
		if !a.Wanted() || a.Priority() != resp.PriorityHigh || a.server != l.ServerOf(a.route) {
			t.Errorf("%+v", a)
		}
	}
	if len(got) != 2 || got[0] == got[1] || got[0] != "a1 1s" && got[1] != "a1 1s" || got[0] != "b1 0s" && got[1] != "b1 0s" {
		t.Errorf("%q", got)
	}
}
