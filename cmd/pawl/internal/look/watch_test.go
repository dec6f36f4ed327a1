package look

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Of more locks than it compares it cannot say which have gone.
func TestWatcher_TooManyLocks_SaysSo(t *testing.T) {
	t.Parallel()
	const script = `for i = 1, ARGV[1] do local k = ARGV[2] .. i; redis.call('HSET', k, '0f5ae6ca-8d7b-4d28-a2f6-3d5f6b9c7a11:39', 1); redis.call('PEXPIRE', k, 600000) end`
	for what, c := range map[string]struct {
		locks int
		name  string
	}{"many": {mostWatched/bytesWatched + 1, "x"}, "long": {mostWatched/(60<<10) + 1, strings.Repeat("x", 60<<10)}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			s.Do("EVAL", script, "0", fmt.Sprint(c.locks), c.name)
			e, err := engine.Open(t.Context(), s.URL())
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			w := &watcher{eng: e, pattern: "*"}
			if err := w.lines(ctx, io.Discard, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "pattern") {
				t.Errorf("%v", err)
			}
		})
	}
}
