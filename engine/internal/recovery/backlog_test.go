package recovery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

func equal[T comparable](a, b []T) bool { return slices.Equal(a, b) }

// some makes n names: u0, u1, ...
func some(n int, prefix string) (list []Stalled) {
	for i := range n {
		list = append(list, &labName{Name: fmt.Sprint(prefix, i)})
	}
	return list
}

// somePast makes n past releases: p0, p1, ...
func somePast(n int) (list []Release) {
	for i := range n {
		list = append(list, Release{Name: fmt.Sprint("p", i)})
	}
	return list
}

// name is the name of what is sent; "" for nothing.
func (s ready) name() string {
	switch {
	case s.isPast:
		return s.past.Name
	case s.res != nil:
		return s.res.(*labName).Name
	}
	return ""
}

func TestWhatIsSentNext(t *testing.T) {
	t.Parallel()
	const at = clock.Instant(time.Hour)
	const soon = at - 1
	type lists struct{ urgent, tries, again int }
	for name, test := range map[string]struct {
		has    lists
		out    int
		turn   bool // past releases had the latest turn
		up     bool
		now    clock.Instant
		want   string
		wakeAt clock.Instant
	}{
		"nothing":                                 {lists{}, 0, false, true, at, "", 0},
		"urgent before all":                       {lists{2, 2, 2}, 0, false, true, at, "u1", 0},
		"urgent beyond the bound":                 {lists{1, 1, 1}, maxTries + 1, false, true, at, "u0", 0},
		"urgent without a connection":             {lists{1, 1, 1}, 0, false, false, at, "u0", 0},
		"a try":                                   {lists{0, 2, 0}, 0, false, true, at, "t1", 0},
		"the last try within the bound":           {lists{0, 1, 0}, maxTries - 1, false, true, at, "t0", 0},
		"a try beyond it":                         {lists{0, 1, 0}, maxTries, false, true, at, "", 0},
		"a try without a connection":              {lists{0, 1, 0}, 0, false, false, at, "t0", 0},
		"a past release":                          {lists{0, 0, 2}, 0, false, true, at, "p1", 0},
		"a past release, again":                   {lists{0, 0, 2}, 0, true, true, at, "p1", 0},
		"its turn":                                {lists{0, 1, 1}, 0, false, true, at, "p0", 0},
		"the turn of a try":                       {lists{0, 1, 1}, 0, true, true, at, "t0", 0},
		"a past release within the bound":         {lists{0, 0, 1}, maxTries - 1, false, true, at, "p0", 0},
		"a past release beyond it":                {lists{0, 0, 1}, maxTries, false, true, at, "", 0},
		"a past release without a connection":     {lists{0, 0, 1}, 0, false, false, at, "", 0},
		"its turn, without a connection":          {lists{0, 1, 1}, 0, false, false, at, "t0", 0},
		"a past release that is not due":          {lists{0, 0, 1}, 0, false, true, soon, "", at},
		"its turn, and it is not due":             {lists{0, 1, 1}, 0, false, true, soon, "t0", at},
		"not its turn, and not due":               {lists{0, 1, 1}, 0, true, true, soon, "t0", 0},
		"not due, beyond the bound":               {lists{0, 0, 1}, maxTries, false, true, soon, "", 0},
		"not due, and without a connection":       {lists{0, 0, 1}, 0, false, false, soon, "", 0},
		"nothing is due, as there is none at all": {lists{0, 0, 0}, 0, false, true, soon, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := backlog{
				urgent: some(test.has.urgent, "u"), tries: some(test.has.tries, "t"), resend: somePast(test.has.again),
				resendAt: at, out: test.out, turn: test.turn,
			}
			before := len(b.urgent) + len(b.tries) + len(b.resend)
			s := b.next(test.up, test.now)
			if s.name() != test.want || s.wakeAt != test.wakeAt {
				t.Errorf("%q, wake at %v; want %q, %v", s.name(), s.wakeAt, test.want, test.wakeAt)
			}
			sent := 0
			if test.want != "" {
				sent = 1
			}
			if b.out != test.out+sent || len(b.urgent)+len(b.tries)+len(b.resend) != before-sent {
				t.Errorf("%d are out after %d; %d are left of %d", b.out, test.out, len(b.urgent)+len(b.tries)+len(b.resend), before)
			}
		})
	}
}

// The whole of a backlog, in its order.
func TestTheOrderInWhichALaneIsWorkedOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		urgent, tries, again int
		want                 []string
	}{
		"all kinds":          {2, 3, 2, []string{"u1", "u0", "p1", "t2", "p0", "t1", "t0"}},
		"more past releases": {0, 1, 3, []string{"p2", "t0", "p1", "p0"}},
		"more tries":         {1, 3, 1, []string{"u0", "p0", "t2", "t1", "t0"}},
	} {
		b := backlog{urgent: some(test.urgent, "u"), tries: some(test.tries, "t"), resend: somePast(test.again)}
		var got []string
		for b.waiting() {
			got = append(got, b.next(true, 0).name())
		}
		if !equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if s := b.next(true, 0); s.name() != "" || b.urgent != nil || b.tries != nil {
			t.Errorf("%s: %q follows, or the lists keep their memory", name, s.name())
		}
	}
}

// The bound holds for tries and past releases together, whatever was sent before.
func TestNoMoreThanTheBoundIsOut(t *testing.T) {
	t.Parallel()
	b := backlog{urgent: some(10, "u"), tries: some(maxTries, "t"), resend: somePast(maxTries)}
	sent := 0
	for b.next(true, 0).name() != "" {
		sent++
	}
	if sent != maxTries || b.out != maxTries {
		t.Errorf("%d were sent, %d are out", sent, b.out)
	}
	b.answered()
	if b.next(true, 0).name() == "" || b.next(true, 0).name() != "" {
		t.Error("an answer makes room for one")
	}
}

// The latest that is added moves the instant of all; an earlier one does not.
func TestPastReleasesWaitForTheLatest(t *testing.T) {
	t.Parallel()
	var b backlog
	for _, at := range []clock.Instant{3, 7, 5, 0} {
		b.addPast(Release{}, at)
	}
	if b.resendAt != 7 || len(b.resend) != 4 {
		t.Errorf("%d at %d", len(b.resend), b.resendAt)
	}
}

func TestWhenALaneIsForgotten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		b             backlog
		waiting, over bool
	}{
		"nothing to do":      {backlog{}, false, true},
		"something was":      {backlog{turn: true, resendAt: 5}, false, true},
		"something urgent":   {backlog{urgent: some(1, "u")}, true, false},
		"a try":              {backlog{tries: some(1, "t")}, true, false},
		"a past release":     {backlog{resend: somePast(1)}, true, false},
		"a command is out":   {backlog{out: 1}, false, false},
		"it will be kicked":  {backlog{rechecking: true}, false, false},
		"empty lists, a cap": {backlog{urgent: make([]Stalled, 0, 8)}, false, true},
	} {
		if test.b.waiting() != test.waiting || test.b.over() != test.over {
			t.Errorf("%s: waiting %v, over %v", name, test.b.waiting(), test.b.over())
		}
	}
}

func TestALaneIsKickedOnce(t *testing.T) {
	t.Parallel()
	var b backlog
	if !b.recheck() || b.recheck() || !b.rechecking {
		t.Error("the first kick is to be arranged, no other")
	}
	b.rechecking = false
	if !b.recheck() {
		t.Error("after it was looked at, it is kicked again")
	}
}

func TestBacklog_Answered_CountsItAndSaysWhetherAnythingWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		b    backlog
		want bool
	}{
		"nothing waits":          {backlog{out: 1}, false},
		"a try waits":            {backlog{out: 1, tries: some(1, "t")}, true},
		"something urgent waits": {backlog{out: 1, urgent: some(1, "u")}, true},
		"a past release waits":   {backlog{out: 1, resend: somePast(1)}, true},
		"others are out":         {backlog{out: 9, tries: some(1, "t")}, true},
	} {
		out := test.b.out
		if got := test.b.answered(); got != test.want || test.b.out != out-1 {
			t.Errorf("%s: %v, want %v; %d are out", name, got, test.want, test.b.out)
		}
	}
}

func TestASweepLeavesWhatIsWanted(t *testing.T) {
	t.Parallel()
	b := backlog{urgent: some(4, "u"), tries: some(5, "t"), resend: somePast(2)}
	for _, r := range []Stalled{b.urgent[0], b.urgent[3], b.tries[1], b.tries[2]} {
		*r.Unwanted() = true
	}
	if left := b.sweep(); left != 5 || len(b.resend) != 2 {
		t.Errorf("%d names are left, %d past releases", left, len(b.resend))
	}
	var names []string
	all, past := b.takeAll()
	for _, r := range all {
		names = append(names, r.(*labName).Name)
	}
	if want := []string{"u1", "u2", "t0", "t3", "t4"}; !equal(names, want) || len(past) != 2 {
		t.Errorf("%q and %d past releases, want %q", names, len(past), want)
	}
	if b.waiting() {
		t.Error("something is left")
	}
}

// The lists are swept when half of them is dropped, or so, and not for a few names.
func TestWhenTheListsAreSwept(t *testing.T) {
	t.Parallel()
	for left, want := range map[int]int{
		0: sweepAt, 1: sweepAt, sweepAt: sweepAt, sweepAt + 1: sweepAt + 1, 100_000: 100_000,
	} {
		var d sweeper
		d.swept(left)
		n := 1
		for !d.dropped() {
			n++
		}
		if n != want {
			t.Errorf("%d are left: swept after %d more, want %d", left, n, want)
		}
		if d.swept(0); d.dropped() {
			t.Errorf("%d are left: swept twice", left)
		}
	}
	var d sweeper
	n := 1
	for !d.dropped() {
		n++
	}
	if n != sweepAt {
		t.Errorf("the first time after %d", n)
	}
}
