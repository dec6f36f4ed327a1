package demo

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// WorkerConfig is the task of one worker process.
type WorkerConfig struct {
	// Number tells the workers of a round apart, from 1.
	Number int
	// URL is the server's. It may hold a password: pass it in the environment.
	URL string
	// Parse, if set, is used instead of engine.ParseURL: it adds certificates and passwords.
	Parse func(url string) (engine.Config, error)
	// Key is the counter's; the lock is named after it.
	Key        string
	Increments int
	Lease      time.Duration
	// Unlocked does without the lock.
	Unlocked bool
	// Stay stops before the last write, with the lock held, until killed.
	Stay bool
}

// What a worker and its parent say to each other, a line each; some with the number
// that the worker wrote or read.
const (
	wordReady  = "ready"  // worker: connected
	wordGo     = "go"     // parent: begin; the second time: make the last increment too
	wordDone   = "done"   // worker: wrote n
	wordInside = "inside" // worker: read n, holds the lock, and stays
	wordLost   = "lost"   // worker: the hold ended before the write, once more
)

const (
	// connectTimeout bounds the connecting of one process, unless the URL says
	// otherwise.
	connectTimeout = 10 * time.Second
	// window is the moment between read and write. Without a lock some other of
	// three workers reads within it nearly every time.
	window = 2 * time.Millisecond
)

// Work is what a worker process does. It ends when its work is done, or when in
// ends: then the parent is gone.
func Work(ctx context.Context, w WorkerConfig, in io.Reader, out io.Writer) error {
	if w.Parse == nil {
		w.Parse = engine.ParseURL
	}
	cfg, err := w.Parse(w.URL)
	if err != nil {
		return err
	}
	cfg.Lease = w.Lease
	patience := cmp.Or(cfg.DialTimeout, connectTimeout)
	connecting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	eng, err := engine.New(connecting, cfg)
	if err != nil {
		return err
	}
	defer eng.Close()
	c, err := openCounter(ctx, cfg, w.Key)
	if err != nil {
		return err
	}
	defer c.close()

	ctx, orphaned := context.WithCancelCause(ctx)
	gate := make(chan struct{}, 2)
	go func() { // ends with in, mostly because the process ends
		for lines := bufio.NewScanner(in); lines.Scan() && lines.Text() == wordGo; {
			gate <- struct{}{}
		}
		orphaned(errOrphan)
	}()
	t := task{WorkerConfig: w, counter: c, lock: eng.Mutex(lockName(w.Key)), patience: patience, gate: gate, out: out}
	return t.run(ctx)
}

var errOrphan = errors.New("demo: the process that started this worker is gone")

type task struct {
	WorkerConfig
	counter *counter
	lock    engine.Mutex
	// patience is how long a server may be away. Lock would wait for it for ever.
	patience time.Duration
	gate     <-chan struct{} // a word of the parent
	out      io.Writer
}

// run makes the increments. The first and the last wait for the parent: all workers
// must begin at once, and none may be done before the one that is killed.
func (t *task) run(ctx context.Context) error {
	fmt.Fprintln(t.out, wordReady)
	for done, passed := 0, 0; done < t.Increments; {
		if passed == 0 || passed == 1 && done == t.Increments-1 {
			select {
			case <-t.gate:
				passed++
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		stay := t.Stay && done == t.Increments-1
		written, err := t.increment(ctx, stay)
		switch {
		case written > 0: // it counts, even if its release failed
			done++
			fmt.Fprintln(t.out, wordDone, written)
		case errors.Is(err, errUnknown):
			return err
		case errors.Is(err, engine.ErrLost):
			fmt.Fprintln(t.out, wordLost)
		case errors.Is(err, engine.ErrHeld) && ctx.Err() == nil: // by the others, all that time
		default:
			return err
		}
	}
	return nil
}

// increment adds 1, with the lock unless the worker does without, and returns what
// it wrote.
func (t *task) increment(ctx context.Context, stay bool) (written int, err error) {
	if t.Unlocked {
		return t.add(ctx, stay)
	}
	err = t.lock.Do(ctx, func(ctx context.Context, h *engine.Hold) (err error) {
		written, err = t.add(ctx, stay)
		return err
	}, engine.Wait(t.patience))
	return written, err
}

// add is what needs the lock: two commands with a moment between them. ctx ends
// with the hold.
func (t *task) add(ctx context.Context, stay bool) (written int, err error) {
	n, err := t.counter.read(ctx)
	if err != nil {
		return 0, err
	}
	pause := time.NewTimer(window)
	defer pause.Stop()
	if stay {
		fmt.Fprintln(t.out, wordInside, n)
		pause.Stop()
	}
	select {
	case <-pause.C:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err := t.counter.write(ctx, n+1); err != nil {
		return 0, err
	}
	return n + 1, nil
}
