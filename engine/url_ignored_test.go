package engine

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
)

// messages is a slog.Handler that keeps what is logged.
type messages struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

func (m *messages) Enabled(context.Context, slog.Level) bool { return true }
func (m *messages) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m *messages) WithGroup(string) slog.Handler            { return m }
func (m *messages) Handle(_ context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, r.Level.String()+" "+r.Message)
	return nil
}

// Somebody may have meant something by them.
func TestNew_SettingsOfOtherClients_AreLoggedOnce(t *testing.T) {
	t.Parallel()
	cfg, err := ParseURL("redis://127.0.0.1:1?protocol=2&lanes=2&pool_size=3")
	if err != nil {
		t.Fatal(err)
	}
	kept := new(messages)
	cfg.Lazy, cfg.Logger = true, slog.New(kept)
	e, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	about := slices.DeleteFunc(kept.all, func(text string) bool { return !strings.Contains(text, "other clients") })
	if len(about) != 1 || !strings.HasPrefix(about[0], "WARN pawl: the URL has settings of other clients") || !strings.HasSuffix(about[0], ": pool_size, protocol") {
		t.Errorf("%q", kept.all)
	}
}
