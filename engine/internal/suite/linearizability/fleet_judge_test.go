//go:build linux || darwin

package linearizability

import (
	"fmt"
	"strings"
	"testing"
)

// judge is a test that may fail.
type judge struct {
	testing.TB
	errors []string
}

func (j *judge) Errorf(format string, args ...any) {
	j.errors = append(j.errors, fmt.Sprintf(format, args...))
}

// What the histories of several processes are judged by finds each fault, and no other.
func TestRecord_FaultyHistory_IsFound(t *testing.T) {
	t.Parallel()
	hold := func(id, name string, asked, granted, token, valid int64) string {
		return fmt.Sprintf("@asked %s %d %s Lock\n@granted %s %d owner%s %d %d\n", id, asked, name, id, granted, id, token, valid)
	}
	unlock := func(id string, begin, end int64, result string) string {
		return fmt.Sprintf("@unlocking %s %d\n@unlocked %s %d %s\n", id, begin, id, end, result)
	}
	for name, x := range map[string]struct {
		lines string
		want  string // in one of the errors; "": there is none
	}{
		"handed on":                         {hold("1", "a", 10, 20, 0, 100) + unlock("1", 30, 40, "ok") + hold("2", "a", 15, 35, 0, 100), ""},
		"killed, and taken after the lease": {hold("1", "a", 10, 20, 0, 100) + hold("2", "a", 15, 101, 0, 200), ""},
		"killed while it unlocked":          {hold("1", "a", 10, 20, 0, 100) + "@unlocking 1 30\n" + hold("2", "a", 15, 31, 0, 200), ""},
		"killed before it was granted":      {"@asked 1 10 a Lock\n" + hold("2", "a", 15, 20, 0, 200), ""},
		"two names":                         {hold("1", "a", 10, 20, 0, 100) + hold("2", "b", 15, 30, 0, 200), ""},
		"two at once":                       {hold("1", "a", 10, 20, 0, 100) + hold("2", "a", 15, 30, 0, 200), "two holds at once"},
		"two at once, one renewed":          {hold("1", "a", 10, 20, 0, 25) + "@valid 1 100\n" + hold("2", "a", 15, 30, 0, 200), "two holds at once"},
		"two at once, one between":          {hold("1", "a", 10, 20, 0, 100) + hold("2", "a", 15, 30, 0, 29) + hold("3", "a", 15, 40, 0, 200), "two holds at once"},
		"removed in its time":               {hold("1", "a", 10, 20, 0, 100) + unlock("1", 30, 40, "lost:removed"), "nobody took it"},
		"removed after its lease":           {hold("1", "a", 10, 20, 0, 100) + unlock("1", 130, 140, "lost:removed"), ""},
		"tokens":                            {hold("1", "fenced", 10, 20, 7, 100) + unlock("1", 30, 40, "ok") + hold("2", "fenced", 15, 45, 8, 100), ""},
		"no token":                          {hold("1", "fenced", 10, 20, 0, 100), "token 0"},
		"a token twice":                     {hold("1", "fenced", 10, 20, 7, 100) + unlock("1", 30, 40, "ok") + hold("2", "fenced", 15, 45, 7, 100), "token 7"},
		"a token falls":                     {hold("1", "fenced", 10, 20, 8, 100) + unlock("1", 30, 40, "ok") + hold("2", "fenced", 42, 45, 7, 100), "token 7 after 8"},
		"a token falls in the order":        {hold("1", "fenced", 10, 20, 8, 100) + unlock("1", 30, 40, "ok") + hold("2", "fenced", 15, 45, 7, 100), "not the history of a mutex"},
		"half a line":                       {"@granted 1 1", "no sense"},
	} {
		t.Run(name, func(t *testing.T) {
			r, j := newRecord(), &judge{TB: t}
			for text := range strings.Lines(x.lines) {
				r.line(strings.TrimSpace(text))
			}
			r.check(j)
			if all := strings.Join(j.errors, "\n"); (x.want == "") != (all == "") || !strings.Contains(all, x.want) {
				t.Errorf("want %q, found: %s", x.want, all)
			}
		})
	}
}

// A long history is judged in parts, and a fault is found in whatever part it is.
func TestRecord_LongHistory_IsJudgedInParts(t *testing.T) {
	t.Parallel()
	const length = 5 * partLength
	for faulty := range length {
		if faulty%97 != 0 && faulty != length-1 { // a token falls there; not in the first one
			continue
		}
		var holds []*operation
		for i := range int64(length) {
			o := &operation{id: fmt.Sprint(i), name: "fenced", asked: 10*i - 95, granted: 10*i + 5, token: i + 10, valid: 1 << 40,
				unlocking: 10*i + 7, unlocked: 10*i + 12, result: "ok"}
			if i > 0 && i == int64(faulty) {
				o.token = i + 8
			}
			holds = append(holds, o)
		}
		j := &judge{TB: t}
		if parts := wantOrder(j, holds); parts < length/partLength {
			t.Errorf("%d parts", parts)
		}
		if found := len(j.errors) > 0; found != (faulty > 0) {
			t.Errorf("hold %d has a token too low: %v", faulty, j.errors)
		}
	}
}
