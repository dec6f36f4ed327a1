//go:build linux || darwin

package linearizability

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

const (
	processLease = 2 * time.Second
	// On a busy machine the sentinels may elect another primary of their own accord, and have the old one follow it
	// after ten seconds. Until then nobody has the acknowledgements of all replicas.
	processPatience = 20 * time.Second
	processCallers  = 8 // goroutines
)

// contested are the names that everybody wants.
var contested = []string{"plain0", "plain1", "plain2", "fenced0", "fenced1", "fenced2"}

func isFenced(name string) bool { return strings.HasPrefix(name, "fenced") }

// now is an instant of the clock that all processes of the machine share.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// at is an instant of this process by that clock. It is never too late.
func at(i time.Time) int64 {
	before := now()
	return before + int64(time.Until(i))
}

// process is a worker process: an engine, and callers that take and give back locks. Its PeerArgs are its number,
// the seed, the URL, and the proxies in front of the servers, as ADDRESS=PROXY.
type process struct {
	t       *testing.T
	number  string
	e       *engine.Engine
	stop    chan struct{} // the faults are over, and nobody begins anything new
	patient context.Context
	serial  atomic.Int64
}

func beProcess(t *testing.T, args []string) {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	proxies := make(map[string]string)
	for _, pair := range args[3:] {
		addr, proxy, _ := strings.Cut(pair, "=")
		proxies[addr] = proxy
	}
	p := &process{t: t, number: args[0], stop: make(chan struct{})}
	number, _ := strconv.ParseUint(args[0], 10, 64)
	p.e = testkit.Open(t, args[2], func(c *engine.Config) {
		c.Replicas, c.AckTimeout = engine.AllReplicas, 500*time.Millisecond
		c.Lease, c.CommandTimeout, c.DialTimeout, c.CloseTimeout = processLease, time.Second, time.Second, 2*time.Second
		c.Lazy = true
		c.CommandConns = 1 + int(number)%2
		c.AddrMap = func(addr string) string {
			if proxy := proxies[addr]; proxy != "" {
				return proxy
			}
			return addr
		}
	})
	// No wait outlives the faults by more than the patience.
	patient, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	p.patient = patient
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(p.stop)
		ctx, cancel := cputime.WithTimeout(patient, processPatience)
		defer cancel()
		<-ctx.Done()
		giveUp()
	}()
	var callers sync.WaitGroup
	for i := range processCallers {
		c := &caller{process: p, rng: rand.New(rand.NewPCG(seed, number*100+uint64(i)))}
		callers.Go(c.run)
	}
	callers.Wait()
	p.wantNothingLeft()
}

// wantNothingLeft fails the test if the engine holds, waits for or remembers anything, or does not close.
func (p *process) wantNothingLeft() {
	testkit.Eventually(p.t, "the engine knows of no name any more", func() bool { return testkit.Inside(p.e).Names == 0 })
	if s := p.e.Stats(); s.Held != 0 || s.Waiting != 0 || s.Leaked != 0 {
		p.t.Errorf("%+v", s)
	}
	if in := testkit.Inside(p.e); in.Out != 0 || in.Watched != 0 {
		p.t.Errorf("%d paced commands were never answered, %d contexts are watched", in.Out, in.Watched)
	}
	if p.t.Failed() {
		testkit.Report(p.t, p.e)
	}
	if err := p.e.Close(); err != nil {
		p.t.Errorf("Close: %v", err)
	}
}

// say prints a line of the record, at once and whole.
func say(words ...any) {
	if _, err := os.Stdout.WriteString(linePrefix + fmt.Sprintln(words...)); err != nil {
		panic(err) // the test that reads it is gone
	}
}
