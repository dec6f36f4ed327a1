package invariants_test

import (
	"testing"

	"github.com/pawl-lock/pawl/internal/invariants"
)

func panics(f func()) (text any) {
	defer func() { text = recover() }()
	f()
	return nil
}

func TestCheck_Broken_PanicsOnlyWhenEnabled(t *testing.T) {
	for _, c := range []struct {
		check func()
		want  string
	}{
		{func() { invariants.Check(false, "two holders") }, "BUG: two holders"},
		{func() { invariants.Checkf(false, "%d holders", 2) }, "BUG: 2 holders"},
	} {
		var want any
		if invariants.Enabled {
			want = c.want
		}
		if got := panics(c.check); got != want {
			t.Errorf("panicked with %v, want %v", got, want)
		}
	}
}

func TestCheck_Kept_IsSilent(t *testing.T) {
	got := panics(func() {
		invariants.Check(true, "")
		invariants.Checkf(true, "")
	})
	if got != nil {
		t.Error(got)
	}
}
