package main

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/pawl-lock/pawl/bench"
)

// benchBar draws the progress of a benchmark, on a terminal only: elsewhere it
// would be noise in a log.
type benchBar struct {
	out   io.Writer // nil: nothing is drawn
	bar   *progressbar.ProgressBar
	stage string
}

func newBenchBar(out io.Writer) *benchBar {
	if f, ok := out.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		out = nil
	}
	return &benchBar{out: out}
}

func (b *benchBar) show(p bench.Progress) {
	if b.out == nil {
		return
	}
	if b.bar == nil || b.stage != p.Stage {
		b.clear()
		b.stage = p.Stage
		b.bar = progressbar.NewOptions64(p.Total,
			progressbar.OptionSetWriter(b.out),
			progressbar.OptionSetDescription(p.Stage),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false),
			progressbar.OptionClearOnFinish())
	}
	// Drawing is all that can fail.
	_ = b.bar.Set64(p.Done)
}

// clear takes the bar off the screen.
func (b *benchBar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}
