package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Screen shows lines and the progress of a round: a bar on a terminal, now and
// then a line elsewhere. Its methods are called from one goroutine.
type Screen struct {
	w        io.Writer
	failed   func(error) // told of what cannot be written; nil outside Run
	terminal bool
	bar      *progressbar.ProgressBar
	goal     int
	shown    time.Time // last line of progress
}

// every is how often a line of progress is written.
const every = 500 * time.Millisecond

// NewScreen returns a screen that writes to w.
func NewScreen(w io.Writer, terminal bool) *Screen { return &Screen{w: w, terminal: terminal} }

// Write writes for the bar and for the lines.
func (s *Screen) Write(p []byte) (n int, err error) {
	if n, err = s.w.Write(p); err != nil && s.failed != nil {
		s.failed(fmt.Errorf("%w: %w", ErrOutput, err))
	}
	return n, err
}

func (s *Screen) say(format string, args ...any) {
	if s.bar != nil {
		_ = s.bar.Clear()
	}
	fmt.Fprintf(s, format+"\n", args...)
}

// begin begins a round of goal increments.
func (s *Screen) begin(goal int) {
	s.goal, s.shown = goal, time.Now()
	if s.terminal {
		s.bar = progressbar.NewOptions(goal,
			progressbar.OptionSetWriter(s),
			progressbar.OptionSetDescription("  increments"),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(30),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
}

func (s *Screen) progress(done int) {
	if s.bar != nil {
		_ = s.bar.Set(done)
		return
	}
	if now := time.Now(); now.Sub(s.shown) >= every {
		s.shown = now
		fmt.Fprintf(s, "  %d of %d increments\n", done, s.goal)
	}
}

// end ends the round.
func (s *Screen) end() {
	if s.bar != nil {
		_ = s.bar.Clear()
		s.bar = nil
	}
}
