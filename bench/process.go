package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/process"
	"github.com/pawl-lock/pawl/bench/internal/turns"
	"github.com/pawl-lock/pawl/engine"
)

// What the coordinator orders, a JSON object each; a process answers all but orderRun.
const (
	orderOpen  = "open"  // connect, and lock a name of your own; the first
	orderRun   = "run"   // contend
	orderBegin = "begin" // the measuring begins
	orderStop  = "stop"  // it has ended: report, and end
)

// order is one, with its task if it is orderOpen.
type order struct {
	Do   string `json:"do"`
	Task *task  `json:"task,omitempty"`
}

// task is what a process has to do.
type task struct {
	Number      int           `json:"number"` // from 0
	Name        string        `json:"name"`   // of the lock
	Warm        string        `json:"warm"`   // a name of the process's own
	ClientName  string        `json:"client_name"`
	Goroutines  int           `json:"goroutines"`
	Lease       time.Duration `json:"lease,omitempty"`
	DialTimeout time.Duration `json:"dial_timeout,omitempty"`
	Patience    time.Duration `json:"patience"`
}

// answer says that an order was obeyed, and after orderStop with which results.
type answer struct {
	Error  string  `json:"error,omitempty"` // why the process ends
	Report *report `json:"report,omitempty"`
}

// report is what a process did. Usage and Messages are those from orderBegin to orderStop.
type report struct {
	Turns      []turns.Turn  `json:"turns"` // since orderRun
	Usage      process.Usage `json:"usage"`
	Messages   uint64        `json:"messages"`
	Errors     int64         `json:"errors"`
	FirstError string        `json:"first_error,omitempty"`
	Stuck      int           `json:"stuck"`
	RSSBytes   int64         `json:"rss_bytes"`
}

// RunProcess is what a process does that Config.Process describes. in and out are its standard
// input and output. It ends as the coordinator orders, or when in ends: then the
// coordinator is gone. The URL may have a password, so it comes in the environment. parse is
// Config.Parse.
func RunProcess(ctx context.Context, url string, parse func(string) (engine.Config, error), in io.Reader, out io.Writer) error {
	ctx, orphaned := context.WithCancel(ctx)
	defer orphaned()
	orders := make(chan order)
	go func() { // ends with in, mostly because the process ends
		defer orphaned()
		for lines := json.NewDecoder(in); ; {
			var o order
			if lines.Decode(&o) != nil {
				return
			}
			select {
			case orders <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	p := &contender{ctx: ctx, orders: orders, answers: json.NewEncoder(out)}
	err := p.run(url, parse)
	if ctx.Err() != nil {
		return nil // nobody is there to read an error
	}
	if err != nil {
		_ = p.answers.Encode(answer{Error: err.Error()}) // it also fails the process
	}
	return err
}

// contender is a process that contends for the lock.
type contender struct {
	ctx     context.Context
	orders  <-chan order
	answers *json.Encoder
	task    *task
	eng     *engine.Engine
	log     *turns.Log
	used    process.Meter
}

// next waits for an order.
func (p *contender) next() (order, error) {
	select {
	case o := <-p.orders:
		return o, nil
	case <-p.ctx.Done():
		return order{}, context.Cause(p.ctx)
	}
}

func (p *contender) run(url string, parse func(string) (engine.Config, error)) error {
	o, err := p.next()
	if err != nil {
		return err
	}
	p.task = o.Task
	cfg, err := parse(url)
	if err != nil {
		return err
	}
	cfg.ClientName, cfg.Lease, cfg.DialTimeout = p.task.ClientName, cmp.Or(p.task.Lease, cfg.Lease), cmp.Or(p.task.DialTimeout, cfg.DialTimeout)
	p.log = turns.NewLog(p.task.Number)
	if !p.alone() {
		cfg.Observer = engine.ObserverFuncs{OnAcquireEnd: p.acquired}
	}
	if p.eng, err = newEngine(p.ctx, cfg); err != nil {
		return err
	}
	defer p.eng.Close()
	// The scripts are loaded from then on.
	warm := pawl{p.eng}.Worker(p.task.Warm)
	if err := warm(p.ctx); err != nil {
		return err
	}
	if err := p.answers.Encode(answer{}); err != nil {
		return err
	}
	return p.contend()
}

// contend runs the workers until the coordinator says stop.
func (p *contender) contend() error {
	if _, err := p.next(); err != nil { // orderRun
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	workers := make([]*worker, p.task.Goroutines)
	m := p.eng.Mutex(p.task.Name)
	for i := range workers {
		workers[i] = &worker{pair: func(ctx context.Context) error {
			if err := p.pair(ctx, m); ctx.Err() == nil {
				return err
			}
			return nil // the end of the run is no failure
		}}
	}
	r := startWorkers(ctx, workers)
	close(r.begin)
	var messages uint64
	_, err := p.next() // orderBegin
	if err == nil {
		p.used.Start()
		messages = p.eng.Stats().Messages
		if err = p.answers.Encode(answer{}); err == nil {
			_, err = p.next() // orderStop
		}
	}
	messages = p.eng.Stats().Messages - messages
	p.used.Stop()
	r.stop.Store(true)
	cancel() // hundreds would wait for long
	stuck := awaitAll(workers, p.task.Patience)
	if err != nil {
		return err
	}
	return p.answers.Encode(answer{Report: p.report(workers, stuck, messages)})
}

func (p *contender) report(workers []*worker, stuck map[*worker]bool, messages uint64) *report {
	r := &report{Turns: p.log.All(), Usage: p.used.Total, Messages: messages, Stuck: len(stuck), RSSBytes: process.MaxRSS()}
	for _, w := range workers {
		if stuck[w] {
			continue
		}
		r.Errors += w.errors
		if w.err != nil && r.FirstError == "" {
			r.FirstError = "process " + strconv.Itoa(p.task.Number+1) + ": " + w.err.Error()
		}
	}
	return r
}

// alone reports whether there is one goroutine: then every grant is the server's, and nobody
// needs to observe which are.
func (p *contender) alone() bool { return p.task.Goroutines == 1 }

// acquired observes an acquisition: the goroutine that got the lock calls it before Lock returns.
func (p *contender) acquired(_ context.Context, _ engine.Acquisition, end engine.AcquireEnd) {
	if end.Err == nil && !end.HandedOver {
		p.log.Begin()
	}
}

// pair locks and unlocks once.
func (p *contender) pair(ctx context.Context, m engine.Mutex) error {
	asked := p.log.Now()
	h, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	if p.alone() {
		p.log.Begin()
	}
	p.log.Granted(asked)
	p.log.Released()
	return h.Unlock(ctx)
}
