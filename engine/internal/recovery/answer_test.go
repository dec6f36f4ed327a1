package recovery

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// What an answer to a release that was sent once more calls for, for every verdict.
func TestWhatAnAnswerToARepeatedReleaseMeans(t *testing.T) {
	t.Parallel()
	const fine, away = true, false
	tests := map[string]struct {
		verdict lock.Result
		closed  bool
		code    int64
		want    meaning
	}{
		"released":                    {lock.Replied, false, script.Done, meaning{works: fine, effect: true}},
		"released, not announced":     {lock.Replied, false, script.Unheard, meaning{works: fine, effect: true}},
		"still held":                  {lock.Replied, false, script.StillHeld, meaning{works: fine, effect: true}},
		"the successor had heard":     {lock.Replied, false, script.NotThere, meaning{works: fine}},
		"no connection":               {lock.NotSent, false, 0, meaning{works: away, refused: true, again: true}},
		"its lane is full":            {lock.LaneFull, false, 0, meaning{works: away, refused: true, again: true}},
		"nobody wanted it":            {lock.Cancelled, false, 0, meaning{works: away, refused: true, again: true}},
		"shut":                        {lock.ClientClosed, true, 0, meaning{works: away}},
		"shut when it was out":        {lock.Unknown, true, 0, meaning{works: away}},
		"no answer":                   {lock.Unknown, false, 0, meaning{works: away, again: true}},
		"refused for now":             {lock.RetryLater, false, 0, meaning{works: fine, again: true, pause: 100 * time.Millisecond}},
		"the name is something else":  {lock.WrongType, false, 0, meaning{works: fine}},
		"refused for good":            {lock.Refused, false, 0, meaning{works: fine}},
		"refused, whatever the value": {lock.Refused, false, script.Done, meaning{works: fine}},
	}
	asked := make(map[lock.Result]bool)
	for name, test := range tests {
		asked[test.verdict] = true
		if got := meaningOf(test.verdict, test.closed, test.code); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	for v := lock.Replied; v <= lock.Refused; v++ {
		if !asked[v] {
			t.Errorf("verdict %d is not in the table", v)
		}
	}
}
