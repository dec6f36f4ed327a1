package counter

import "testing"

// A try that is refused is in nobody's way: neither in its command, nor are those refused for whom
// there was no room in that.
func TestATryThatIsRefusedRefusesNoOther(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.ask("look", "v")
	tooMany := l.ask("too many", "t9")
	var others []*caller
	for range MostOps {
		others = append(others, l.ask("other", "t1"))
	}
	l.answer(MostOps)
	codes := make([]int64, MostOps)
	for i := range codes[1:] {
		codes[1+i] = 1
	}
	l.answer(codes...)
	if tooMany.why == nil {
		t.Error("it is not refused")
	}
	l.answer(1) // the last, for whom there was no room
	for i, one := range others {
		if one.why != nil || !one.Completed() {
			t.Errorf("the other %d: %v, told %t", i, one.why, one.Completed())
		}
	}
}
