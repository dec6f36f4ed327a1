//go:build linux || darwin

package linearizability

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// places is how many worker processes there are at a time.
const places = 4

// fleet is a history of several processes on a primary with two replicas and three sentinels. Each process
// has the place of one that was killed before it, and its network: proxies that break connections. Processes are
// killed and stopped, and sentinels promote a replica, on command or because the primary was killed.
//
// All locks are acknowledged by all replicas, so that docs/promises.md allows no exception: whichever replica is
// promoted, what must hold is the same. Order and exclusion are judged over all processes (see record).
//
//	PAWL_HISTORY=4m PAWL_HISTORY_SEED=1 go test -run TestProcesses -v ./engine/internal/suite/linearizability
type fleet struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	servers *redistest.Replicated
	proxies [places][]*faultproxy.Proxy // by place and server
	primary atomic.Int32                // which of the servers it is
	workers [places]*started
	begun   int // processes so far
	record  *record

	cuts, kills, stops, failovers int
}

// started is a process at a place.
type started struct {
	*testkit.Peer
	ended chan struct{}
	err   error // of its end; read after ended
}

// Four processes lock, extend and unlock while they are killed and stopped, their connections break, and
// another server becomes the primary.
func TestProcesses_KilledCutAndFailedOver_HistoryIsThatOfMutexes(t *testing.T) {
	if args := testkit.PeerArgs(); len(args) > 0 {
		beProcess(t, args)
		return
	}
	t.Parallel()
	length, seed := lengthAndSeed(t, 5*time.Second)
	f := &fleet{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), servers: redistest.StartSentinel(t), record: newRecord()}
	for place := range f.workers {
		for _, s := range f.servers.Servers() {
			f.proxies[place] = append(f.proxies[place], faultproxy.New(t, "tcp", s.Addr()))
		}
		f.start(place)
	}
	f.run(length)
	t.Logf("%d processes, %d faults of networks, %d kills, %d stops, %d failovers", f.begun, f.cuts, f.kills, f.stops, f.failovers)
	if holds := f.record.check(t); holds < 100 {
		t.Errorf("only %d holds: this tested little", holds)
	}
	f.wantNothingLeft()
}

// start starts a process at a place.
func (f *fleet) start(place int) {
	f.t.Helper()
	args := []any{f.begun, f.seed, f.servers.URL()}
	for i, s := range f.servers.Servers() {
		args = append(args, s.Addr()+"="+f.proxies[place][i].Addr())
	}
	f.begun++
	w := &started{Peer: testkit.StartPeer(f.t, args...), ended: make(chan struct{})}
	f.workers[place] = w
	go func() {
		defer close(w.ended)
		var said []string
		w.err = w.Follow(func(text string) {
			if !f.record.line(text) {
				said = append(said, text)
			}
		})
		if w.err != nil {
			w.err = fmt.Errorf("%w\n%s", w.err, strings.Join(said, "\n"))
		}
	}()
}

// kill kills the process at a place, wherever it is.
func (f *fleet) kill(place int) {
	f.t.Helper()
	w := f.workers[place]
	select {
	case <-w.ended:
		f.t.Fatalf("a process has ended by itself: %v", w.err)
	default:
	}
	f.kills++
	if err := w.Process.Kill(); err != nil {
		f.t.Error(err)
	}
	<-w.ended
}

// end tells the processes that the faults are over, and waits until each has been served, and ends.
func (f *fleet) end() {
	f.t.Helper()
	for _, w := range f.workers {
		w.EndInput()
	}
	limit := testkit.Within(f.t, 4*processPatience+testkit.Limit)
	for i, w := range f.workers {
		select {
		case <-w.ended:
		case <-limit.Done():
			_ = w.Signal(syscall.SIGQUIT) // it says what it is doing
			<-w.ended
		}
		if w.err != nil {
			f.t.Errorf("the process at place %d: %v", i, w.err)
		}
	}
}

// wantNothingLeft fails the test if the primary has more left than counters of tokens, and queues that
// end by themselves: a process that was killed may have left them.
func (f *fleet) wantNothingLeft() {
	f.t.Helper()
	primary := f.servers.Primary()
	wantNoKeys(f.t, primary, func(key string) bool { return strings.HasPrefix(key, script.TokenPrefix) || isQueue(primary, key) })
	testkit.Eventually(f.t, "no channel is left", func() bool {
		list, _ := primary.Do("PUBSUB", "CHANNELS", "redisson*").([]any)
		return len(list) == 0
	})
}

// isQueue reports whether a key is a queue of engines, which ends within a minute. One may have the places of engines that
// were killed, or as they were when a replica was promoted.
func isQueue(s *redistest.Server, key string) bool {
	ttl, _ := s.Do("PTTL", key).(int64)
	return strings.HasPrefix(key, script.WaitersPrefix) && ttl != -1 && ttl <= 60_000
}
