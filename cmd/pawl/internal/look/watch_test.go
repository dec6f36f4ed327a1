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
	s := redistest.Start(t)
	s.Do("EVAL", `for i = 1, ARGV[1] do redis.call('HSET', i, '0f5ae6ca-8d7b-4d28-a2f6-3d5f6b9c7a11:39', 1) redis.call('PEXPIRE', i, 600000) end`,
		"0", fmt.Sprint(mostWatched/bytesWatched))
	cfg, err := engine.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.CommandTimeout = time.Minute // this machine may have other things to do
	e, err := engine.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := &watcher{eng: e, pattern: "*"}
	if err := w.lines(ctx, io.Discard, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "pattern") {
		t.Errorf("%v", err)
	}
}
