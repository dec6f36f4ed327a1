//go:build linux || darwin

package linearizability

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// betweenFailovers is how far apart failovers are in a long history.
const betweenFailovers = 40 * time.Second

// run makes faults for some time, and then has the processes end.
func (f *fleet) run(length time.Duration) {
	f.t.Helper()
	over := make(chan struct{})
	calm := min(length/5, 10*time.Second) // what a killed process had is taken until its lease ends
	var networks sync.WaitGroup
	var vandals []*vandal
	for place := range f.proxies {
		v := &vandal{
			rng:     rand.New(rand.NewPCG(f.seed, 10+uint64(place))),
			calm:    calm,
			scripts: []*script.Script{script.Acquire, script.Join, script.Withdraw, script.Fenced, script.Several, script.Release, script.Renew},
			p:       func() *faultproxy.Proxy { return f.proxies[place][f.primary.Load()] },
		}
		vandals = append(vandals, v)
		networks.Go(func() { v.run(over) })
	}
	began := time.Now()
	failovers := max(1, int(length/betweenFailovers))
	for time.Since(began) < length {
		quiet := rand64(f.rng, 800*time.Millisecond)
		if f.rng.IntN(3) == 0 {
			quiet = rand64(f.rng, calm)
		}
		testkit.Pause(nil, quiet)
		if time.Since(began) > length*time.Duration(2*f.failovers+1)/time.Duration(2*failovers) && f.failovers < failovers {
			f.failover()
			continue
		}
		f.atProcess()
	}
	close(over)
	networks.Wait()
	for _, v := range vandals {
		f.cuts += v.faults
	}
	testkit.Eventually(f.t, "all replicas are there", func() bool {
		return len(f.servers.Primary().Replicas()) == len(f.servers.Servers())-1
	})
	f.servers.AwaitInStep()
	f.end()
}

// atProcess kills a process and starts another one, or stops one, sometimes for longer than its lease.
func (f *fleet) atProcess() {
	f.t.Helper()
	place := f.rng.IntN(places)
	switch f.rng.IntN(4) {
	case 0, 1:
		f.kill(place)
		f.start(place)
	case 2:
		length := rand64(f.rng, 200*time.Millisecond)
		if f.rng.IntN(4) == 0 {
			length = rand64(f.rng, processLease*3/2)
		}
		f.stops++
		w := f.workers[place]
		if err := w.Signal(syscall.SIGSTOP); err != nil {
			f.t.Fatal(err)
		}
		testkit.Pause(nil, length)
		if err := w.Signal(syscall.SIGCONT); err != nil {
			f.t.Fatal(err)
		}
	case 3:
		s := f.servers.Servers()[f.primary.Load()]
		_, _ = s.Process.Do("SCRIPT", "FLUSH")
		_, _ = s.Process.Do("CLIENT", "KILL", "TYPE", []string{"pubsub", "normal"}[f.rng.IntN(2)])
	}
}

// failover has another server become the primary, and the old one its replica. One of the processes may die just
// before.
func (f *fleet) failover() {
	f.t.Helper()
	f.failovers++
	place := f.rng.IntN(places)
	dies := f.rng.IntN(2) == 0
	if dies {
		f.kill(place)
	}
	old := f.servers.Primary()
	if f.rng.IntN(2) == 0 {
		f.servers.Failover()
	} else {
		// The replicas lag behind: what they lack was not acknowledged.
		for range 1 + f.rng.IntN(20) {
			old.Do("CLIENT", "KILL", "TYPE", "replica")
			testkit.Pause(nil, 10*time.Millisecond)
		}
		old.Kill()
		f.servers.AwaitOther(old)
	}
	next := f.follow(old)
	// On command two primaries serve meanwhile. One that was killed comes back empty: that must not happen while a
	// sentinel names it, or engines would look for their locks there (see docs/promises.md).
	testkit.Pause(nil, rand64(f.rng, time.Second))
	if !old.Running() {
		old.Restart()
	}
	host, port, _ := strings.Cut(next.Addr(), ":") // sentinels would wait for 8 s before they tell it
	old.Do("REPLICAOF", host, port)
	if dies {
		f.start(place)
	}
}

// follow leads the networks to the server that the sentinels name in place of the old primary, when all of them do.
// (That one says that it is the primary, too, and may have a replica for longer.)
func (f *fleet) follow(old *redistest.Server) (next *redistest.Server) {
	f.t.Helper()
	testkit.Eventually(f.t, "all sentinels name the next primary", func() bool {
		named := make(map[string]int)
		for _, sentinel := range f.servers.Sentinels() {
			if addr, _ := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.MasterName).([]any); len(addr) == 2 {
				named[fmt.Sprint(addr[0], ":", addr[1])]++
			}
		}
		for i, s := range f.servers.Servers() {
			if s != old && named[s.Addr()] == len(f.servers.Sentinels()) {
				f.primary.Store(int32(i))
				next = s
			}
		}
		return next != nil
	})
	return next
}
