package redisson

import (
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// ground is the kind of deployment that a test of the catalogue runs on.
type ground struct {
	start func(t redistest.TB, opts ...redistest.Option) *redistest.Server
}

var clustered = redistest.StartLone

func (on ground) server(t testing.TB) *redistest.Server {
	t.Helper()
	return on.start(t)
}

// everywhere runs the test on a standalone server, and on a cluster of one node: what would
// cross slots is refused there, and channels are sharded. But nothing can go to the wrong node. So
// TestLocksOnEveryNodeOfACluster and TestAReaderInsideItsWriter have three; what else is about
// several nodes is in engine/internal/suite/topology.
func everywhere(t *testing.T, test func(t *testing.T, on ground)) {
	t.Parallel()
	for name, g := range map[string]ground{
		"standalone": {redistest.Start},
		"cluster":    {clustered}, // of one node
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, g)
		})
	}
}

// locker is the lock L of an engine, of one kind.
type locker func(e *engine.Engine) engine.Mutex

// locks are the kinds that are a plain lock to their users.
var locks = map[string]locker{
	"Mutex":     func(e *engine.Engine) engine.Mutex { return e.Mutex("L") },
	"SpinMutex": func(e *engine.Engine) engine.Mutex { return e.SpinMutex("L") },
	"FairMutex": func(e *engine.Engine) engine.Mutex { return e.FairMutex("L") },
}

// everyLock runs the test everywhere, with each of these.
func everyLock(t *testing.T, test func(t *testing.T, on ground, lock locker)) {
	everywhere(t, func(t *testing.T, on ground) {
		for name, lock := range locks {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, on, lock)
			})
		}
	})
}

// contest is a kind of lock: one of it, one that waits for that, and what Redisson leaves there:
// the fields of the hash, and the message of its end.
type contest struct {
	holds, waits     locker
	fields           []string
	channel, message string
}

// everyContest runs the test everywhere, with each kind of lock.
func everyContest(t *testing.T, test func(t *testing.T, on ground, c contest)) {
	reader := func(e *engine.Engine) engine.Mutex { return e.RWMutex("L").Reader() }
	writer := func(e *engine.Engine) engine.Mutex { return e.RWMutex("L").Writer() }
	fenced := func(e *engine.Engine) engine.Mutex { return e.FencedMutex("L") }
	me := javaA + ":1"
	plain := func(l locker) contest {
		return contest{l, l, []string{me, "1"}, javaChannel("L"), "0"}
	}
	contests := map[string]contest{
		"FencedMutex": plain(fenced),
		"Reader":      {reader, writer, []string{"mode", "read", me, "1"}, "redisson_rwlock:{L}", "0"},
		"Writer":      {writer, reader, []string{"mode", "write", me + ":write", "1"}, "redisson_rwlock:{L}", "1"},
	}
	for name, lock := range locks {
		contests[name] = plain(lock)
	}
	everywhere(t, func(t *testing.T, on ground) {
		for name, c := range contests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, on, c)
			})
		}
	})
}

// verb is the command, or what the server calls its messages, with an S in front where channels
// are sharded.
func verb(s *redistest.Server, plain string) string {
	switch {
	case !s.Sharded():
		return plain
	case plain == strings.ToUpper(plain):
		return "S" + plain
	default:
		return "s" + plain
	}
}

// subscribers is how many listen to a channel.
func subscribers(s *redistest.Server, channel string) int64 {
	numsub := "NUMSUB"
	if s.Sharded() {
		numsub = "SHARDNUMSUB"
	}
	list, _ := s.Do("PUBSUB", numsub, channel).([]any)
	if len(list) != 2 {
		return -1
	}
	n, _ := list[1].(int64)
	return n
}
