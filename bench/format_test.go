package bench

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redacttest"
)

func TestNothingThatIsPrintedTellsThePasswordOfAURL(t *testing.T) {
	t.Parallel()
	const secret, guard = "hunter2hunter2", "guard3guard3"
	url := "redis+sentinel://ada:" + secret + "@h:1,i/m?sentinel_password=" + guard
	for _, v := range []any{
		Config{Scenario: Held, URL: url, Parse: engine.ParseURL, Lease: time.Second, Progress: func(Progress) {}},
		DefaultConfig(Hot), &Server{url: url}, (*Server)(nil),
	} {
		redacttest.Check(t, v, secret, guard)
	}
}
