package engine

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/machine"
)

// A label that is missing, or that two reasons share, is noticed only when somebody needs the metric.
func TestLostReason_Code_IsUniqueAndComplete(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	doc := regexp.MustCompile(`(?s)// Code is .*?\nfunc`).FindString(string(source))
	seen := make(map[string]LostReason)
	for r := LostReason(1); int(r) < machine.Losses; r++ {
		code := r.Code()
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(code) || code == "unknown" {
			t.Errorf("%v: the label %q", r, code)
		}
		if other, twice := seen[code]; twice {
			t.Errorf("%v and %v are both %s", r, other, code)
		}
		if !strings.Contains(doc, code) {
			t.Errorf("the documentation of Code does not name %s", code)
		}
		seen[code] = r
	}
	for r, want := range map[LostReason]string{0: "", LostReason(machine.Losses): "unknown", 255: "unknown", LeaseEnded: "lease_ended", GoneOnServer: "removed"} {
		if got := r.Code(); got != want {
			t.Errorf("%d: %q, want %q", uint8(r), got, want)
		}
	}
}
