package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/bench"
)

// redisson is the program Cost.java, which measures Redisson.
type redisson struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// errNotBuilt means that the Java program is not there.
var errNotBuilt = errors.New("the program for Redisson is not built: mvn --file bench/peers/redisson package")

// openRedisson starts the program for a server without a password; dir is where Maven built it.
func openRedisson(dir, server string) (*redisson, error) {
	if jars, _ := filepath.Glob(dir + "/lib/redisson-*.jar"); len(jars) != 1 {
		return nil, errNotBuilt
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	r := &redisson{cmd: exec.Command("java", "-cp", dir+"/classes:"+dir+"/lib/*", "Cost", u.Host)}
	in, inErr := r.cmd.StdinPipe()
	out, outErr := r.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, r.cmd.Start()); err != nil {
		return nil, err
	}
	r.in, r.out = in, bufio.NewScanner(out)
	return r, nil
}

// Close ends the program.
func (r *redisson) Close() error { return errors.Join(r.in.Close(), r.cmd.Wait()) }

// turn has Redisson do a workload.
func (r *redisson) turn(w workload, callers int, d time.Duration) (*bench.Result, error) {
	if _, err := fmt.Fprintln(r.in, w.java, nameOf(w), callers, d.Milliseconds()); err != nil {
		return nil, err
	}
	if !r.out.Scan() {
		return nil, errors.Join(errors.New("the JVM has ended"), r.out.Err())
	}
	var pairs, elapsed, cpu, p50, p99 int64
	if _, err := fmt.Sscanf(r.out.Text(), "ok %d %d %d %d %d", &pairs, &elapsed, &cpu, &p50, &p99); err != nil {
		return nil, fmt.Errorf("the JVM says %q", strings.TrimSpace(r.out.Text()))
	}
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	return &bench.Result{
		Scenario: kinds, Client: "redisson", Goroutines: callers,
		DurationS: float64(elapsed) / 1e9, Pairs: pairs, PairsPerSecond: float64(pairs) / (float64(elapsed) / 1e9),
		ClientCPUUsPerPair: us(cpu) / float64(pairs),
		LatencyUs:          bench.Latency{P50: us(p50), P99: us(p99)},
	}, nil
}
