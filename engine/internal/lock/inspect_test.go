package lock

import "testing"

// A name whose readers are apart from its writers is one name.
func TestShard_Names_ReadersAndWriters_NoneIsLeftOut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.name()
	l.cell()
	if names, more := l.Names(10); len(names) != 1 || more != 0 {
		t.Errorf("names %q and %d more", names, more)
	}
	l.makeInGroup("y", 0, 0)
	for most, want := range []int{1: 1, 2: 0} {
		if names, more := l.Names(most); most > 0 && (len(names) != most || more != want) {
			t.Errorf("at most %d: names %q and %d more, want %d", most, names, more, want)
		}
	}
}
