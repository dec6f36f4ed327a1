package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// child is a process that contends, seen from the coordinator.
type child struct {
	number int
	cmd    *exec.Cmd
	in     io.Closer
	orders *json.Encoder
}

// event is what a child answers, or why it has ended.
type event struct {
	from   *child
	answer answer
	err    error
}

var errUnasked = errors.New("bench: a process answers and was not asked")

// childPatience is how long a process may take to end: longer than an engine takes to close.
const childPatience = 15 * time.Second

// startChild starts a process. When ctx ends its input does, and then the process; one
// that does not is killed.
func startChild(ctx context.Context, cfg Config, number int, url string) (*child, io.Reader, error) {
	cmd := cfg.Process(ctx, number, url)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, childPatience
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("bench: process %d: %w", number+1, err)
	}
	return &child{number: number, cmd: cmd, in: in, orders: json.NewEncoder(in)}, out, nil
}

// order gives the process an order. If it has ended, an event says so.
func (c *child) order(o order) { _ = c.orders.Encode(o) }

// listen passes the answers on, and waits for the end. That is an event, too, unless the
// process has made its report.
func (c *child) listen(out io.Reader, events chan<- event) {
	reported, why := false, "it ended"
	for lines := json.NewDecoder(out); ; {
		var a answer
		if lines.Decode(&a) != nil {
			break
		}
		if a.Error != "" {
			why = a.Error
			continue
		}
		reported = reported || a.Report != nil
		events <- event{from: c, answer: a}
	}
	_ = c.in.Close() // it says no more, or nothing that makes sense
	err := c.cmd.Wait()
	switch {
	case reported:
	case err == nil:
		events <- event{from: c, err: fmt.Errorf("bench: process %d: %s", c.number+1, why)}
	default:
		events <- event{from: c, err: fmt.Errorf("bench: process %d: %s: %w", c.number+1, why, err)}
	}
}
