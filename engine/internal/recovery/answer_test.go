package recovery

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// What an answer to a release that was sent once more calls for, for every verdict.
func TestWhatAnAnswerToARepeatedReleaseMeans(t *testing.T) {
	t.Parallel()
	const fine, away = true, false
	tests := map[string]struct {
		verdict machine.Verdict
		closed  bool
		code    int64
		want    meaning
	}{
		"released":                    {machine.Answered, false, script.Done, meaning{works: fine, effect: true}},
		"released, not announced":     {machine.Answered, false, script.Unheard, meaning{works: fine, effect: true}},
		"still held":                  {machine.Answered, false, script.StillHeld, meaning{works: fine, effect: true}},
		"the successor had heard":     {machine.Answered, false, script.NotThere, meaning{works: fine}},
		"no connection":               {machine.NotSent, false, 0, meaning{works: away, refused: true, again: true}},
		"its lane is full":            {machine.Full, false, 0, meaning{works: away, refused: true, again: true}},
		"nobody wanted it":            {machine.Unwanted, false, 0, meaning{works: away, refused: true, again: true}},
		"shut":                        {machine.Shut, true, 0, meaning{works: away}},
		"shut when it was out":        {machine.Unknown, true, 0, meaning{works: away}},
		"no answer":                   {machine.Unknown, false, 0, meaning{works: away, again: true}},
		"refused for now":             {machine.Busy, false, 0, meaning{works: fine, again: true, pause: 100 * time.Millisecond}},
		"the name is something else":  {machine.WrongType, false, 0, meaning{works: fine}},
		"refused for good":            {machine.Denied, false, 0, meaning{works: fine}},
		"refused, whatever the value": {machine.Denied, false, script.Done, meaning{works: fine}},
	}
	asked := make(map[machine.Verdict]bool)
	for name, test := range tests {
		asked[test.verdict] = true
		if got := meaningOf(test.verdict, test.closed, test.code); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	for v := machine.Answered; v <= machine.Denied; v++ {
		if !asked[v] {
			t.Errorf("verdict %d is not in the table", v)
		}
	}
}
