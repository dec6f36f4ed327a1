package topology

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp/wire"
)

// listening subscribes to a channel with the given command, and returns what comes.
func listening(t *testing.T, addr, verb, channel string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(wire.AppendCommand(nil, verb, channel)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	hears(t, r, strings.ToLower(verb))
	return r
}

// hears reads up to a line.
func hears(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%q did not come: %v", want, err)
		}
		if strings.TrimSpace(line) == want {
			return
		}
	}
}

// On the wire, seen by a client that is not Pawl: which messages a release sends, and
// which ones wake a waiter.
func TestReleasesAreAnnouncedAndHeardAsTheModeSays(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false, redistest.Needs(redistest.ShardedChannels))
	at := testkit.Clustered(cluster)
	for mode, verb := range map[string]string{"on": "SSUBSCRIBE", "auto": "SSUBSCRIBE", "off": "SUBSCRIBE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			name := "lock of " + mode
			channel := "redisson_lock__channel:{" + name + "}"
			node := cluster.Owner(cluster.Slot(name))
			e := testkit.Open(t, at.URL+"?sharded_pubsub="+mode)
			listener := listening(t, node.Addr(), verb, channel)
			testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex(name)))
			hears(t, listener, map[string]string{"SSUBSCRIBE": "smessage", "SUBSCRIBE": "message"}[verb])
			// And the other way: a holder that is not Pawl goes.
			at.Do(name, "HSET", name, "stranger:1", "1")
			at.Do(name, "PEXPIRE", name, "3600000")
			f := e.Mutex(name).LockAsync(testkit.Ctx(t))
			testkit.Eventually(t, "it listens", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 1 })
			at.Do(name, "DEL", name)
			start := cputime.Now()
			publish := map[string]string{"SSUBSCRIBE": "SPUBLISH", "SUBSCRIBE": "PUBLISH"}[verb]
			at.Do(name, publish, channel, "0")
			h, err := f.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			// The poll of sharded heads comes after five seconds at the earliest.
			if d := start.Elapsed(); d > 4*time.Second {
				t.Errorf("woken after %v", d)
			}
			testkit.MustUnlock(t, h)
		})
	}
}

// An engine with "auto" that found the cluster before it was upgraded, and one that came later, do not
// hear each other. So each tries by itself now and then.
func TestEnginesThatDoNotHearEachOtherTryNowAndThen(t *testing.T) {
	t.Parallel()
	at := testkit.Clustered(redistest.StartCluster(t, false, redistest.Needs(redistest.ShardedChannels)))
	for _, pair := range [][2]string{{"off", "on"}, {"on", "off"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			name := "strangers " + pair[0]
			holder, waiter := testkit.Open(t, at.URL+"?sharded_pubsub="+pair[0]), testkit.Open(t, at.URL+"?sharded_pubsub="+pair[1])
			h := testkit.MustLock(t, holder.Mutex(name), engine.Lease(time.Hour))
			f := waiter.Mutex(name).LockAsync(testkit.Ctx(t))
			testkit.Eventually(t, "it listens", func() bool { return testkit.Client(waiter).Stats().ChannelsConfirmed == 1 })
			testkit.MustUnlock(t, h)
			start := cputime.Now()
			next, err := f.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := start.Elapsed(); d > lock.LongestSleepMissed+2*time.Second {
				t.Errorf("granted after %v", d)
			}
			testkit.MustUnlock(t, next)
		})
	}
}
