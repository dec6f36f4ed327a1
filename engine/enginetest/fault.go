package enginetest

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// Stranger is the owner that Steal puts in, as Mutex.State shows it.
const Stranger = "enginetest:1"

// strangerLease outlives every test.
const strangerLease = time.Hour

// Steal gives the lock to a stranger, as if somebody had force-unlocked and then
// acquired it. A free lock is simply taken. A holder is told at its next renewal, or at
// once if its engine has waiters for the name. The stranger holds the lock until
// Expire.
func (env *Env) Steal(name string) {
	key := env.key(name)
	db := env.server.Redis().DB(env.config.DB)
	// The stranger comes in before the others go, so that the lock is never free.
	db.HSet(key, Stranger, "1")
	owners, _ := db.HKeys(key)
	for _, owner := range owners {
		if owner != Stranger {
			db.HDel(key, owner)
		}
	}
	db.SetTTL(key, strangerLease)
	env.announce(key)
}

// Expire ends the lock's lease on the server now, no matter who holds it, as if the
// holder had not renewed it. Waiters try at once; they do not wait for the rest of the lease.
// Expire of a lock that nobody holds is an error of the test.
func (env *Env) Expire(name string) {
	env.t.Helper()
	key := env.key(name)
	if !env.server.Redis().DB(env.config.DB).Del(key) {
		env.t.Errorf("enginetest: Expire(%q): nobody holds it", name)
		return
	}
	env.announce(key)
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

// announce wakes the waiters of the lock.
func (env *Env) announce(key string) {
	channel := script.Channel{Prefix: "redisson_lock__channel", Lock: key}
	env.server.Redis().Publish(channel.Name(), "0")
}
