package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// kind is a type of lock that both have. Every test takes all of them, or says which not.
type kind struct {
	name     string        // Pawl's
	java     string        // what the Java program calls it
	names    int           // how many locks it takes together; 0: one
	servers  int           // how many servers it is spread over; 0: one
	wakes    time.Duration // a waiter is woken within this, half of the times
	slow     bool          // under contention: Redisson waits for all servers while it has a majority
	polls    bool          // its waiters ask again and again, and listen to nothing
	composed bool          // of other locks: it has no state and no force-unlock of its own
	counts   bool          // its grants, in a key that stays
	queues   bool          // its waiters, on the server
	writes   bool          // beside readers of the same name
	reads    bool          // beside others who read; a writer waits for it
	pawl     func(engines []*engine.Engine, names []string) locker
}

var kinds = []kind{
	{
		name: "Mutex", java: "plain", wakes: 50 * time.Millisecond,
		pawl: func(e []*engine.Engine, names []string) locker { return lockerOf(e[0].Mutex(names[0])) },
	},
	{
		name: "SpinMutex", java: "spin", wakes: 500 * time.Millisecond, polls: true,
		pawl: func(e []*engine.Engine, names []string) locker { return lockerOf(e[0].SpinMutex(names[0])) },
	},
	{
		name: "NonReentrant", java: "nonreentrant", wakes: 50 * time.Millisecond,
		pawl: func(e []*engine.Engine, names []string) locker {
			return lockerOf(e[0].Mutex(names[0]), engine.NonReentrant())
		},
	},
	{
		name: "FencedMutex", java: "fenced", wakes: 50 * time.Millisecond, counts: true,
		pawl: func(e []*engine.Engine, names []string) locker { return lockerOf(e[0].FencedMutex(names[0])) },
	},
	{
		name: "FairMutex", java: "fair", wakes: 50 * time.Millisecond, queues: true,
		pawl: func(e []*engine.Engine, names []string) locker { return lockerOf(e[0].FairMutex(names[0])) },
	},
	{
		name: "RWMutex.Writer", java: "write", wakes: 50 * time.Millisecond, writes: true,
		pawl: func(e []*engine.Engine, names []string) locker { return lockerOf(e[0].RWMutex(names[0]).Writer()) },
	},
	{
		name: "Multi", java: "multi", names: 3, wakes: 100 * time.Millisecond, composed: true,
		pawl: func(e []*engine.Engine, names []string) locker { return lockerOf(engine.Multi(mutexes(e, names)...)) },
	},
	{
		name: "RedLock", java: "red", servers: 3, wakes: 3 * time.Second, slow: true, composed: true,
		pawl: func(e []*engine.Engine, names []string) locker { return lockerOf(engine.RedLock(mutexes(e, names)...)) },
	},
}

// reading is the kind that does not exclude its like. Tests of what becomes of a holder take it, too.
var reading = kind{
	name: "RWMutex.Reader", java: "read", wakes: 50 * time.Millisecond, reads: true,
	pawl: func(e []*engine.Engine, names []string) locker { return lockerOf(e[0].RWMutex(names[0]).Reader()) },
}

// withReaders are the kinds of a ground, and reading, if that is tested there.
func withReaders(own []kind, g ground) []kind {
	if slices.Contains(reading.grounds(), g) {
		own = append(slices.Clone(own), reading)
	}
	return own
}

// mutexes is every name on every engine.
func mutexes(engines []*engine.Engine, names []string) (all []engine.Mutex) {
	for _, e := range engines {
		for _, name := range names {
			all = append(all, e.Mutex(name))
		}
	}
	return all
}

// hold is what the types' holds have in common.
type hold interface {
	Unlock(ctx context.Context) error
	Done() <-chan struct{}
	Err() error
	Context(parent context.Context) context.Context
}

// locker is one lock of Pawl, of any type.
type locker struct {
	lock, try func(ctx context.Context, opts ...engine.Option) (hold, error)
}

func lockerOf[H hold](l interface {
	Lock(ctx context.Context, opts ...engine.Option) (H, error)
	TryLock(ctx context.Context, opts ...engine.Option) (H, error)
}, always ...engine.Option) locker {
	return locker{
		lock: func(ctx context.Context, opts ...engine.Option) (hold, error) {
			return l.Lock(ctx, append(opts, always...)...)
		},
		try: func(ctx context.Context, opts ...engine.Option) (hold, error) {
			return l.TryLock(ctx, append(opts, always...)...)
		},
	}
}

// subject is one lock, as both see it.
type subject struct {
	kind
	locker
	stage  *stage
	about  string   // what its names begin with
	names  []string // on each of the servers
	places string   // for Java
}

// ask has a thread of Java do something with the lock.
func (x *subject) ask(thread, verb string, words ...any) answer {
	return x.stage.jvm.ask(x.thread(thread), verb, append([]any{x.java, x.places}, words...)...)
}

// rival is the lock that waits while this one is held: itself, or the writer's if this is a reader's.
func (x *subject) rival() *subject {
	if !x.reads {
		return x
	}
	y := *x
	y.java, y.reads, y.writes = "write", false, true
	y.pawl = func(e []*engine.Engine, names []string) locker { return lockerOf(e[0].RWMutex(names[0]).Writer()) }
	y.locker = y.pawl(x.stage.engines, x.names)
	return &y
}

// thread is the name of a thread that locks of this type have on this stage.
func (x *subject) thread(name string) string { return x.stage.clients[0] + ":" + x.name + ":" + name }

// subject makes a lock of the kind, with a name that nothing else on the stage has.
func (s *stage) subject(t testing.TB, k kind, about string) *subject {
	t.Helper()
	x := &subject{kind: k, stage: s, about: k.name + "/" + strings.ReplaceAll(about, " ", "-") + "/"}
	var places []string
	for i := range max(k.names, 1) {
		x.names = append(x.names, fmt.Sprint(x.about, i))
	}
	for _, client := range s.clients {
		for _, name := range x.names {
			places = append(places, client+"/"+name)
		}
	}
	x.places, x.locker = strings.Join(places, ","), k.pawl(s.engines, x.names)
	return x
}
