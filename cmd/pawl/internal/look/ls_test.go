package look

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// All rows of a table are as wide as the widest one.
func TestRowOf_LongTexts_AreShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\xff", 64<<10)
	claims := &engine.EngineInfo{Answered: true, Host: strings.Repeat("h", 256), Service: "s"}
	for _, e := range []*engine.EngineInfo{nil, claims} {
		r := rowOf(&engine.LockInfo{Name: long, Holders: []engine.HolderInfo{{Holder: engine.Holder{ID: long}, Engine: e}}}, time.Now())
		if len(r.name) > 1000 || len(r.holder) > 1000 {
			t.Errorf("%d, %d", len(r.name), len(r.holder))
		}
	}
}
