package turns

import "testing"

func TestLog_HandOversInside_BelongToTheTurn(t *testing.T) {
	t.Parallel()
	l := NewLog(3)
	before := l.Now()
	for _, begins := range []bool{true, false, false, true} {
		if begins {
			l.Begin()
		}
		asked := l.Now()
		l.Granted(asked)
		l.Released()
	}
	all := l.All()
	if len(all) != 2 || all[0].Pairs != 3 || all[1].Pairs != 1 {
		t.Fatalf("%+v", all)
	}
	last := before
	for _, turn := range all {
		if turn.Process != 3 || turn.Asked < last || turn.Granted < turn.Asked || turn.Released < turn.Granted {
			t.Errorf("%+v", turn)
		}
		last = turn.Released
	}
	if last > l.Now() {
		t.Error("it ends in the future")
	}
}
