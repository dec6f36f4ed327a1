package enginetest

import (
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// ForeignOwner is the owner that Steal puts in, as Mutex.State shows it.
const ForeignOwner = "enginetest:1"

// strangerLease is the engine's default.
const strangerLease = 30 * time.Second

// Steal gives the lock to a stranger, as if somebody had force-unlocked and then
// acquired it. A free lock is simply taken. The stranger holds the lock for 30 s, or until Expire.
//
// A holder is told at its next renewal. If its engine has waiters for the name, the holder of a
// Mutex, a FencedMutex or a Writer is told at once. For a loss that is told at once in any case, use
// Lose.
//
// The name must be that of a lock. Steal of a semaphore or a closed latch is an error of the test. (A
// latch that is open has no key: Steal cannot tell it from a free lock.)
func (env *Env) Steal(name string) {
	env.t.Helper()
	key := env.key(name)
	if what := env.server.Type(env.config.DB, key); what != "none" && what != "hash" {
		env.t.Errorf("enginetest: Steal(%q): it is no lock", name)
		return
	}
	env.server.Own(env.config.DB, key, ForeignOwner, strangerLease)
	env.wake(key)
}

// Expire ends the lock's lease on the server now, no matter who holds it, as if somebody had deleted
// the key. Waiters try at once; they do not wait for the rest of the lease. A holder does not
// notice before its next renewal, Extend or Unlock: meanwhile two may hold the lock, as when somebody
// deletes a key by hand. For a holder that is told in time, as when its server is away, use Lose, or Down
// and Up.
//
// Expire of a lock that nobody holds is an error of the test, and so is Expire of a semaphore or a
// latch.
func (env *Env) Expire(name string) {
	env.t.Helper()
	key := env.key(name)
	switch env.server.Type(env.config.DB, key) {
	case "none":
		env.t.Errorf("enginetest: Expire(%q): nobody holds it", name)
	case "hash":
		env.server.Delete(env.config.DB, key)
		env.wake(key)
	default:
		env.t.Errorf("enginetest: Expire(%q): it is no lock", name)
	}
}

// Lose has the holders of the lock lose it now, for that reason: their contexts end, Done is
// closed, and Err says why, before others get the lock, which is released on the server as after any
// loss. Only with RemovedOnServer and KeyOverwritten is the server's key deleted or overwritten (for 30 s)
// first, as when that happens to a real one: others may get the lock a moment before its holder is told.
//
// It concerns the engines of this Env. If none of them holds the lock, that is an error of the test,
// and so is EngineClosed: close the engine.
func (env *Env) Lose(name string, reason engine.LostReason) {
	env.t.Helper()
	key := env.key(name)
	switch reason {
	case engine.RemovedOnServer:
		env.server.Delete(env.config.DB, key)
	case engine.KeyOverwritten:
		env.server.Overwrite(env.config.DB, key, ForeignOwner, strangerLease)
	case engine.LeaseEnded, engine.NotRenewed, engine.MaxHoldReached:
	default:
		env.t.Errorf("enginetest: Lose(%q, %v): a hold is not lost so; to lose it by the end of its engine, close that", name, reason)
		return
	}
	env.mu.Lock()
	engines := env.mu.lose
	env.mu.Unlock()
	n := 0
	for _, lose := range engines {
		n += lose(key, uint8(reason))
	}
	if n == 0 {
		env.t.Errorf("enginetest: Lose(%q): no engine of this Env holds it", name)
	}
	env.wake(key)
}

// Replicas makes the server report n attached replicas, which acknowledge everything at
// once. Use it for code that asks for replicas (engine.Acked, Config.Replicas). At
// first there are none, so such code fails. A server of NewOn has the replicas that it has.
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

// Delay has each answer and each message of the server arrive d later; 0 ends it.
func (env *Env) Delay(d time.Duration) { env.server.Delay(d) }

// DropReplies has the server execute the next n commands of locks, and cuts the connection in place of
// each answer. So what cannot be repeated, like ForceUnlock, fails with ErrOutcomeUnknown, and an
// Unlock that may not wait for the repetition; what can be repeated is, and succeeds. 0 ends it.
func (env *Env) DropReplies(n int) { env.server.DropReplies(n) }

// Refuse has the server refuse every command of locks with that error, as Redis writes it: with
// "OOM command not allowed when used memory > 'maxmemory'." or "READONLY You can't write against a read
// only replica." engines wait until it passes, with "NOPERM this user has no permissions" they
// fail. An empty error ends it.
func (env *Env) Refuse(err string) { env.server.Refuse(err) }

// key is the lock's key on the server.
func (env *Env) key(name string) string {
	if f := env.config.NameMapper; f != nil {
		return f(name)
	}
	return name
}

// wake makes every waiter of the lock try, whatever kind of lock it waits for.
func (env *Env) wake(key string) {
	own := kind.Mutex.Channel(key, "").Name()
	env.server.Publish(own, "0")
	env.server.Publish(kind.Write.Channel(key, "").Name(), "0")
	for _, owner := range env.server.Queued(env.config.DB, script.Companion(script.QueuePrefix, key)) { // each listens for itself
		env.server.Publish(own+":"+owner, "0")
	}
}
