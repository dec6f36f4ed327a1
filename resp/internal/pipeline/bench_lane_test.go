//go:build (linux || darwin || freebsd) && !race

package pipeline

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// benchScript takes a lock as Redisson does.
const benchScript = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then ` +
	`redis.call('hset', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return -2 end ` +
	`return redis.call('pttl', KEYS[1])`

// BenchmarkLane runs script calls on a real server over one lane, each goroutine
// waiting for its reply before it sends the next. depth is the inline depth: 0
// the default, -1 never inline. cpu-us/op is the processor time of this process.
func BenchmarkLane(b *testing.B) {
	server := redistest.Start(b)
	sha := server.Do("SCRIPT", "LOAD", benchScript).(string)
	for _, goroutines := range []int{1, 16, 64, 256} {
		for _, depth := range []int{0, -1, 48} {
			b.Run(fmt.Sprintf("goroutines=%d/depth=%d", goroutines, depth), func(b *testing.B) {
				ls := socket.NewLoops(1, false, func(err error) { b.Errorf("no event loops: %v", err) })
				defer ls.Close()
				l := NewLane(Config{
					Clock:          clock.System(),
					CommandTimeout: time.Minute,
					MaxInFlight:    1 << 14,
					MaxQueuedBytes: 4 << 20,
					inlineDepth:    depth,
					Down:           func(error) {},
				})
				conn, err := net.Dial("unix", server.Socket())
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Attach(ls, conn); err != nil {
					b.Fatal(err)
				}
				benchmarkLane(b, l, goroutines, sha)
			})
		}
	}
}

func benchmarkLane(b *testing.B, l *Lane, goroutines int, sha string) {
	calls := make([]*fixedCall, goroutines)
	for g := range calls {
		calls[g] = newFixedCall()
		calls[g].bytes = wire.AppendCommand(nil, "EVALSHA", sha, "1", "bench:"+strconv.Itoa(g), "30000", "5e0d9ab2-1111-4222-8333-444455556666:"+strconv.Itoa(g))
	}
	before := cpuTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for range (b.N - g + goroutines - 1) / goroutines {
				l.Submit(calls[g])
				<-calls[g].done
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpuTime(b)-before)/1e3/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
}

// cpuTime is the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
