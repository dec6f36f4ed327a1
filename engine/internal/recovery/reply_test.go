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
		want    decision
	}{
		"released":                    {lock.Replied, false, script.Done, decision{works: fine, effect: true}},
		"released, not announced":     {lock.Replied, false, script.Unheard, decision{works: fine, effect: true}},
		"still held":                  {lock.Replied, false, script.StillHeld, decision{works: fine, effect: true}},
		"the successor had heard":     {lock.Replied, false, script.NotThere, decision{works: fine}},
		"no connection":               {lock.NotSent, false, 0, decision{works: away, refused: true, resend: true}},
		"its lane is full":            {lock.LaneFull, false, 0, decision{works: away, refused: true, resend: true}},
		"nobody wanted it":            {lock.Cancelled, false, 0, decision{works: away, refused: true, resend: true}},
		"shut":                        {lock.ClientClosed, true, 0, decision{works: away}},
		"shut when it was out":        {lock.Unknown, true, 0, decision{works: away}},
		"no answer":                   {lock.Unknown, false, 0, decision{works: away, resend: true}},
		"refused for now":             {lock.RetryLater, false, 0, decision{works: fine, resend: true, pause: 100 * time.Millisecond}},
		"the name is something else":  {lock.WrongType, false, 0, decision{works: fine}},
		"refused for good":            {lock.Refused, false, 0, decision{works: fine}},
		"refused, whatever the value": {lock.Refused, false, script.Done, decision{works: fine}},
	}
	asked := make(map[lock.Result]bool)
	for name, test := range tests {
		asked[test.verdict] = true
		if got := decide(test.verdict, test.closed, test.code); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	for v := lock.Replied; v <= lock.Refused; v++ {
		if !asked[v] {
			t.Errorf("verdict %d is not in the table", v)
		}
	}
}
