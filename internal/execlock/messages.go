package execlock

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Notices writes lines for the user. Saying one never blocks, though writing it may
// for ever: on a terminal that Ctrl-S has stopped, or in a pipe that nobody reads.
type Notices struct {
	lines   chan string
	written chan struct{} // closed after the last one
	mu      sync.Mutex
	closed  bool
}

// NewNotices makes a Notices, which must be closed. From then on a broken pipe does
// not end this process with SIGPIPE; what it starts does not inherit that.
func NewNotices(w io.Writer) *Notices {
	// Caught, and not ignored: what is ignored stays so in the command.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	n := &Notices{lines: make(chan string, 64), written: make(chan struct{})}
	go func() { // ends after Close, or with the process
		defer close(n.written)
		for line := range n.lines {
			inBackground(func() { _, _ = io.WriteString(w, line) })
		}
	}()
	return n
}

// Say writes a line, unless many are waiting to be written already. After Close it does nothing.
func (n *Notices) Say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed { // an engine that could not be closed in time has something to say
		return
	}
	select {
	case n.lines <- "pawl: " + fmt.Sprintf(format, args...) + "\n":
	default:
	}
}

// Close waits until all is written, but not longer than patience. It must be called
// once.
func (n *Notices) Close(patience time.Duration) {
	n.mu.Lock()
	n.closed = true
	close(n.lines)
	n.mu.Unlock()
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case <-n.written:
	case <-over.C:
	}
}

// Shown is text of the server's as it may be shown: quoted, if it is empty or a terminal would
// obey some of it. Everybody who may write a key chooses what its holder is called.
func Shown(text string) string {
	if quoted := strconv.Quote(text); text == "" || quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
