package bench

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/process"
	"github.com/pawl-lock/pawl/bench/internal/turns"
)

// runProcesses measures Hot between processes that it starts.
func runProcesses(ctx context.Context, server *Server, cfg Config) (*Result, error) {
	c := &coordinator{cfg: cfg, server: server, events: make(chan event), result: &Result{
		Scenario: cfg.Scenario, Client: "pawl", Server: server.name, Comparable: server.comparable,
		Goroutines: cfg.Processes * cfg.Goroutines, Conditions: conditionsOf(cfg),
	}}
	c.ctx, c.cancel = context.WithCancel(ctx)
	server.named = true
	err := c.run()
	c.end()
	if err == nil {
		err = server.conclude(ctx, c.result)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return c.result, err
}

// coordinator starts the processes, and measures while they contend. They answer each of its orders
// before it gives the next.
type coordinator struct {
	ctx      context.Context // of the processes
	cancel   context.CancelFunc
	cfg      Config
	server   *Server
	children []*child
	readers  sync.WaitGroup
	events   chan event
	result   *Result
}

func (c *coordinator) run() error {
	if err := c.start(); err != nil {
		return err
	}
	c.order(orderRun)
	if err := c.wait("warm-up", c.cfg.Warmup); err != nil {
		return err
	}
	c.order(orderBegin)
	if _, err := c.answers("beginning"); err != nil {
		return err
	}
	before, err := c.server.counts()
	if err != nil {
		return err
	}
	cpu, err := c.server.cpuTime()
	if err != nil {
		return err
	}
	from := time.Now()
	if err := c.wait(c.cfg.Scenario, c.cfg.Duration); err != nil {
		return err
	}
	to := time.Now()
	after, err := c.server.counts()
	if err != nil {
		return err
	}
	if err := c.server.noteCPU(c.result, cpu, to.Sub(from)); err != nil {
		return err
	}
	c.order(orderStop)
	reports, err := c.answers("ending")
	if err != nil {
		return err
	}
	c.conclude(reports, turns.Window{From: from.UnixNano(), To: to.UnixNano()}, after.since(before))
	return nil
}

// start starts the processes, a few at a time: hundreds that connect at once take longer than a
// server may take to answer.
func (c *coordinator) start() error {
	atOnce := 2 * runtime.NumCPU()
	for ready := 0; ready < c.cfg.Processes; ready++ {
		for len(c.children) < min(c.cfg.Processes, ready+atOnce) {
			if err := c.startOne(len(c.children)); err != nil {
				return err
			}
		}
		c.cfg.progress("starting", int64(ready), int64(c.cfg.Processes))
		if _, err := c.next(); err != nil {
			return err
		}
	}
	return nil
}

func (c *coordinator) startOne(number int) error {
	child, answers, err := startChild(c.ctx, c.cfg, number, c.server.url)
	if err != nil {
		return err
	}
	c.children = append(c.children, child)
	c.readers.Go(func() { child.listen(answers, c.events) })
	t := &task{
		Number: number, Name: c.server.prefix + "hot", Warm: c.server.prefix + strconv.Itoa(number),
		ClientName: c.server.clientName(), Goroutines: c.cfg.Goroutines, Lease: c.cfg.Lease, Patience: c.cfg.patience(),
	}
	if c.server.started {
		t.DialTimeout = startedTimeout
	}
	child.order(order{Do: orderOpen, Task: t})
	return nil
}

// order gives all processes an order.
func (c *coordinator) order(do string) {
	for _, child := range c.children {
		child.order(order{Do: do})
	}
}

// next waits for the next answer. The end of a process is an error.
func (c *coordinator) next() (event, error) {
	select {
	case e := <-c.events:
		return e, e.err
	case <-c.ctx.Done():
		return event{}, context.Cause(c.ctx)
	}
}

// answers waits for an answer of each process, and returns the reports that they have.
func (c *coordinator) answers(stage string) (reports []*report, err error) {
	for i := range c.children {
		c.cfg.progress(stage, int64(i), int64(len(c.children)))
		e, err := c.next()
		if err != nil {
			return nil, err
		}
		if e.answer.Report != nil {
			reports = append(reports, e.answer.Report)
		}
	}
	return reports, nil
}

// wait lets the processes contend for d.
func (c *coordinator) wait(stage string, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case <-over.C:
			return nil
		case <-tick.C:
			c.cfg.progress(stage, min(time.Since(began), d).Milliseconds(), d.Milliseconds())
		case e := <-c.events: // none is asked now
			return cmp.Or(e.err, errUnasked)
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
}

// conclude fills the result.
func (c *coordinator) conclude(reports []*report, w turns.Window, executed counts) {
	r, own := c.result, &ProcessesResult{Processes: c.cfg.Processes}
	r.ProcessesResult = own
	var all []turns.Turn
	used := process.Usage{Elapsed: time.Duration(w.To - w.From)}
	window := used.Elapsed.Seconds()
	var messages float64
	for _, report := range reports {
		all = append(all, report.Turns...)
		// The orders reach the processes one after the other, so each has its own time.
		scale := 0.0
		if elapsed := report.Usage.Elapsed.Seconds(); elapsed > 0 {
			scale = window / elapsed
		}
		used.CPU += time.Duration(scale * float64(report.Usage.CPU))
		used.Allocs += uint64(scale * float64(report.Usage.Allocs))
		messages += scale * float64(report.Messages)
		r.Errors, r.Stuck = r.Errors+report.Errors, r.Stuck+report.Stuck
		r.FirstError = cmp.Or(r.FirstError, report.FirstError)
		own.ProcessRSSBytes = max(own.ProcessRSSBytes, report.RSSBytes)
	}
	s := turns.Summarize(all, c.cfg.Processes, w)
	r.Pairs = s.Pairs
	r.Fairness = Fairness{Min: slices.Min(s.PairsOf), Max: slices.Max(s.PairsOf), Mean: float64(s.Pairs) / float64(len(s.PairsOf))}
	// The servers were asked a little before and after that time.
	asked := executed.at.Seconds() / window
	r.finish(used, executed, asked*float64(s.Pairs), s.Waits)
	own.Turns, own.Repeats, own.Overtaken, own.Overlaps, own.WithoutTurn = s.Turns, s.Repeats, s.Overtaken, s.Overlaps, s.WithoutTurn()
	own.HandOverUs = latencyOf(s.HandOvers)
	own.Shares.Min, own.Shares.Median, own.Shares.Max = s.Shares()
	own.CommandsPerHandOver, own.ScriptCallsPerHandOver = executed.per(asked * float64(s.Turns))
	if s.Turns > 0 {
		own.MessagesPerHandOver = messages / float64(s.Turns)
	}
}

// end ends the processes that still run, and waits for all.
func (c *coordinator) end() {
	c.cancel()
	go func() { c.readers.Wait(); close(c.events) }()
	for range c.events { // readers that have something to say
	}
}
