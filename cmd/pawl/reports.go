package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// reports is the handler of an engine's Logger: what an operator must know of a release, once. What
// became of connections and of holds the commands say themselves.
type reports struct {
	hints bool // what is odd about the URL is said, too
	say   func(format string, args ...any)
	mu    sync.Mutex
	said  map[string]bool
}

// newReports makes a Logger that says what it is for. say must not block. Hints are for somebody
// who reads them: cron mails whatever is printed.
func newReports(say func(format string, args ...any), hints bool) *slog.Logger {
	return slog.New(&reports{hints: hints, say: say, said: make(map[string]bool)})
}

// Enabled implements slog.Handler.
func (r *reports) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (r *reports) Handle(_ context.Context, record slog.Record) error {
	text, own := strings.CutPrefix(record.Message, "pawl: ") // and not resp's
	r.mu.Lock()
	defer r.mu.Unlock()
	if hint := strings.HasPrefix(text, "the URL "); own && !r.said[text] && (record.Level >= slog.LevelError || hint && r.hints) {
		r.said[text] = true
		r.say("%s", text)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (r *reports) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler.
func (r *reports) WithGroup(string) slog.Handler { return r }
