package enginetest

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// Stranger is the owner that Steal puts in, as Mutex.State shows it.
const Stranger = "enginetest:1"

// strangerLease outlives every test, in virtual time too.
const strangerLease = 365 * 24 * time.Hour

// Steal gives the lock to a stranger, as if somebody had force-unlocked and then
// acquired it. A free lock is simply taken. The stranger holds the lock until Expire.
//
// A holder is told at its next renewal. If its engine has waiters for the name, the holder of a
// Mutex, a FencedMutex or a Writer is told at once.
//
// The name must be that of a lock. Steal of a semaphore or a closed latch is an error of the test. (A
// latch that is open has no key: Steal cannot tell it from a free lock.)
func (env *Env) Steal(name string) {
	env.t.Helper()
	key := env.key(name)
	db := env.server.Redis().DB(env.config.DB)
	if db.Exists(key) && db.Type(key) != "hash" {
		env.t.Errorf("enginetest: Steal(%q): it is no lock", name)
		return
	}
	// The stranger comes in before the others go, so that the lock is never free.
	db.HSet(key, Stranger, "1")
	owners, _ := db.HKeys(key)
	for _, owner := range owners {
		if owner != Stranger {
			db.HDel(key, owner)
		}
	}
	db.SetTTL(key, strangerLease)
	env.wake(key)
}

// Expire ends the lock's lease on the server now, no matter who holds it, as if the
// holder had not renewed it. Waiters try at once; they do not wait for the rest of the lease.
//
// Expire of a lock that nobody holds is an error of the test, and so is Expire of a semaphore or a
// latch.
func (env *Env) Expire(name string) {
	env.t.Helper()
	key := env.key(name)
	db := env.server.Redis().DB(env.config.DB)
	switch {
	case !db.Exists(key):
		env.t.Errorf("enginetest: Expire(%q): nobody holds it", name)
	case db.Type(key) != "hash":
		env.t.Errorf("enginetest: Expire(%q): it is no lock", name)
	default:
		db.Del(key)
		env.wake(key)
	}
}

// Replicas makes the server report n attached replicas, which acknowledge everything at
// once. Use it for code that asks for replicas (engine.Acked, Config.Replicas). At
// first there are none, so such code fails.
func (env *Env) Replicas(n int) { env.server.SetReplicas(n) }

// Down takes the server away: connections are cut and refused. Its data stays, and
// leases continue to run out.
func (env *Env) Down() { env.server.Down() }

// Up ends Down. Engines reconnect by themselves, within a second or so.
func (env *Env) Up() {
	env.t.Helper()
	if err := env.server.Up(); err != nil {
		env.t.Errorf("enginetest: %v", err)
	}
}

// key is the lock's key on the server.
func (env *Env) key(name string) string {
	if f := env.config.NameMapper; f != nil {
		return f(name)
	}
	return name
}

// wake makes every waiter of the lock try, whatever kind of lock it waits for.
func (env *Env) wake(key string) {
	redis := env.server.Redis()
	own := kind.Mutex.Channel(key, "").Name()
	redis.Publish(own, "0")
	redis.Publish(kind.Write.Channel(key, "").Name(), "0")
	queued, _ := redis.DB(env.config.DB).List(script.Companion(script.QueuePrefix, key))
	for _, owner := range queued { // each listens for itself
		redis.Publish(own+":"+owner, "0")
	}
}
