package pprof

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	rpprof "runtime/pprof"
	"runtime/trace"
	"sync"
	"time"
)

const (
	// mutexFraction: one in so many contended unlocks is sampled.
	mutexFraction = 5
	// blockRate: about one sample for so many nanoseconds blocked.
	blockRate = int(10 * time.Microsecond)
	// A trace of a busy engine grows by tens of megabytes a second; the end of a
	// run is enough to look at.
	traceAge   = 5 * time.Second
	traceBytes = 64 << 20
)

// Capture profiles the process until stop is called. It writes cpu.pprof, heap.pprof,
// mutex.pprof, block.pprof, goroutine.pprof and trace.out (the last seconds) into dir,
// which it makes if it is missing. stop may be called more than once. It reports every
// file that could not be written.
//
// Only one capture can run at a time, and no other CPU profile beside it. Capture sets
// the rates of the mutex and block profiles. stop restores the rate of the mutex
// profile, and sets that of the block profile to 0.
func Capture(dir string) (stop func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	cpu, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err != nil {
		return nil, fmt.Errorf("pprof: %w", err)
	}
	if err := rpprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(fmt.Errorf("pprof: stop the other CPU profile first: %w", err), cpu.Close())
	}
	recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: traceAge, MaxBytes: traceBytes})
	if err := recorder.Start(); err != nil {
		rpprof.StopCPUProfile()
		return nil, errors.Join(fmt.Errorf("pprof: stop the other flight recorder first: %w", err), cpu.Close())
	}
	fraction := runtime.SetMutexProfileFraction(mutexFraction)
	runtime.SetBlockProfileRate(blockRate)

	return sync.OnceValue(func() error {
		rpprof.StopCPUProfile()
		err := errors.Join(cpu.Close(), writeFile(dir, "trace.out", func(w io.Writer) error {
			_, err := recorder.WriteTo(w)
			return err
		}))
		recorder.Stop()
		runtime.GC() // the heap profile is as of the last collection
		for _, name := range []string{"heap", "mutex", "block", "goroutine"} {
			err = errors.Join(err, writeFile(dir, name+".pprof", func(w io.Writer) error {
				return rpprof.Lookup(name).WriteTo(w, 0)
			}))
		}
		runtime.SetMutexProfileFraction(fraction)
		runtime.SetBlockProfileRate(0)
		return err
	}), nil
}

func writeFile(dir, name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("pprof: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("pprof: write %s: %w", name, err)
	}
	return nil
}
