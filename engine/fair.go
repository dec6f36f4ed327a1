package engine

import "github.com/pawl-lock/pawl/engine/internal/kind"

// FairMutex is a Mutex whose waiters get it in the order in which they came to the server, from
// whatever process. On the wire it is Redisson's RFairLock: threads of Java and goroutines wait
// in one queue.
//
// A waiter has its place on the server from its first try until it has the lock or gives up. It
// keeps the place while its connection is lost and comes back within Config.FairWait. It loses it, and
// begins anew at the end,
//
//   - if a try of its own is under way while the connection breaks: what became of that try is
//     not known;
//   - if it is its turn and it does not ask for three seconds while nobody hears that channel:
//     its process has died, or cannot reach the server. These seconds begin when it is the turn
//     of one before it, if nobody hears any of those either. In a cluster without sharded messages,
//     and beside Redisson's clients, that takes Config.FairWait.
//
// TryLock takes a free lock that nobody waits for, and never queues. A waiter costs a
// subscription of its own, and a command every 5 to 10 seconds, or for each lease of the holder if
// that is shorter. Waiters of one process do not hand the lock over to each other (see
// Config.HandOver): it might be another's turn.
//
// In a cluster a FairMutex is not granted while its slot moves to another node, since the queue
// is in keys of its own. What is held stays held, and can be released.
//
// A name is a FairMutex or a Mutex, not both: in one engine the second is ErrKind. The server
// does not notice it, and a Mutex overtakes the queue.
//
// The zero FairMutex is not usable: its methods return ErrInvalid.
type FairMutex struct{ Mutex }

// FairMutex returns the lock of that name whose waiters queue at the server. The rules for names
// are those of Mutex.
func (e *Engine) FairMutex(name string) FairMutex { return FairMutex{e.mutex(name, kind.Fair)} }
