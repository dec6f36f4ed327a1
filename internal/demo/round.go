package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// round is one run of all workers over a counter that begins at 0.
type round struct {
	cfg      Config
	key      string
	victim   bool // the last worker is killed half-way
	unlocked bool

	done     int // increments completed
	goal     int
	killed   time.Time // zero: nobody yet
	left     int       // what the counter said when the killed worker read it
	resumed  time.Time // zero: nobody has incremented since
	events   chan event
	workers  []*process
	starting int // workers that are not ready yet
}

// event is a line of a worker, or its end.
type event struct {
	from *process
	word string
	n    int   // the number after the word
	err  error // of the end, for which word is ""
}

// process is a worker process, seen from its parent.
type process struct {
	number int
	cmd    *exec.Cmd
	in     io.WriteCloser
	stay   bool
}

func newRound(cfg Config, key string) *round {
	return &round{cfg: cfg, key: key, events: make(chan event, 64)}
}

// run starts the workers and returns when all have ended.
func (r *round) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer func() {
		cancel() // kills the workers that still run
		go func() { readers.Wait(); close(r.events) }()
		for range r.events {
		}
	}()
	for i := range r.cfg.Workers {
		p, out, err := r.start(ctx, i+1)
		if err != nil {
			return err
		}
		r.workers = append(r.workers, p)
		readers.Go(func() { r.listen(p, out) })
	}
	r.cfg.Screen.begin(r.goal)
	defer r.cfg.Screen.end()
	r.starting = len(r.workers)
	for running := len(r.workers); running > 0; {
		select {
		case e := <-r.events:
			if e.word == "" {
				running--
			}
			if err := r.heed(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if r.done != r.goal {
		return fmt.Errorf("demo: the workers made %d increments instead of %d", r.done, r.goal)
	}
	if r.victim && r.resumed.IsZero() {
		return fmt.Errorf("demo: no worker went on after one was killed")
	}
	return nil
}

// start starts one worker.
func (r *round) start(ctx context.Context, number int) (*process, io.Reader, error) {
	w := WorkerConfig{
		Number: number, URL: r.cfg.URL, Key: r.key, Lease: r.cfg.Lease,
		Increments: r.cfg.Increments, Unlocked: r.unlocked,
	}
	if r.victim && number == r.cfg.Workers {
		w.Stay = true
		w.Increments = w.Increments/2 + 1
		r.goal--
	}
	r.goal += w.Increments
	cmd := r.cfg.Worker(ctx, w)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("demo: start worker %d: %w", number, err)
	}
	return &process{number: number, cmd: cmd, in: in, stay: w.Stay}, out, nil
}

// listen turns a worker's lines into events, the last of which is its end.
func (r *round) listen(p *process, out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		e := event{from: p}
		_, _ = fmt.Sscan(lines.Text(), &e.word, &e.n) // some have no number
		r.events <- e
	}
	r.events <- event{from: p, err: p.cmd.Wait()}
}

// heed reacts to one event.
func (r *round) heed(e event) error {
	switch e.word {
	case wordReady:
		if r.starting--; r.starting == 0 {
			return r.begin()
		}
	case wordDone:
		r.done++
		// A lower number was written before the worker was killed and is read late.
		if !r.killed.IsZero() && r.resumed.IsZero() && e.n > r.left {
			r.resumed = time.Now()
			r.cfg.Screen.say("  the others went on %v later, when its lease (%v) had ended",
				r.resumed.Sub(r.killed).Round(10*time.Millisecond), r.cfg.Lease)
		}
		r.cfg.Screen.progress(r.done)
	case wordInside:
		if !r.killed.IsZero() { // it had lost the lock, and got it again, before it was killed
			return nil
		}
		if err := e.from.cmd.Process.Kill(); err != nil {
			return fmt.Errorf("demo: kill worker %d: %w", e.from.number, err)
		}
		r.killed, r.left = time.Now(), e.n
		r.cfg.Screen.say("  worker %d (process %d) was killed while it held the lock", e.from.number, e.from.cmd.Process.Pid)
		return r.letOthersFinish()
	case wordLost:
		r.cfg.Screen.say("  worker %d lost the lock before it wrote, and tries again", e.from.number)
	case "":
		if e.err != nil && !(e.from.stay && !r.killed.IsZero()) {
			return fmt.Errorf("demo: worker %d failed: %w", e.from.number, e.err)
		}
	default:
		return fmt.Errorf("demo: worker %d says %q", e.from.number, e.word)
	}
	return nil
}

// begin begins the contention. While somebody is still to be killed, the others
// hold back their last increment, which shows that they go on afterwards.
func (r *round) begin() error {
	for _, p := range r.workers {
		if err := p.goOn(); err != nil {
			return err
		}
		if !r.victim || p.stay {
			if err := p.goOn(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *round) letOthersFinish() error {
	for _, p := range r.workers {
		if !p.stay {
			if err := p.goOn(); err != nil {
				return err
			}
		}
	}
	return nil
}

// goOn lets the worker through its next gate.
func (p *process) goOn() error {
	if _, err := io.WriteString(p.in, wordGo+"\n"); err != nil {
		return fmt.Errorf("demo: worker %d does not listen: %w", p.number, err)
	}
	return nil
}
