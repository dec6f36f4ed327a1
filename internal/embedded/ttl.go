package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// ttlKeeper makes TTLs run out. miniredis keeps for each key what is left of its
// TTL and takes time off only when told to; there are two ways to tell it.
//
// With few keys it takes off what has passed before each access (ClockTTL): exact,
// but each access sorts all keys. With many keys a ticker takes it off in steps.
// A step also takes time from a TTL that was set after the step before, so a key
// may go up to one step early (20 ms with a thousand keys, a second with 100,000): more than the margin of a very short lease, which
// is why the exact way is used where it can be afforded.
type ttlKeeper struct {
	redis *miniredis.Miniredis
	stop  chan struct{}
	done  sync.WaitGroup
}

const (
	// exactKeys is up to how many keys are expired exactly. Sorting that many takes
	// about as long as a tenth of a script takes anyway.
	exactKeys = 256
	// step is the ticker's period. A step that takes long is followed by a pause of
	// stepPause times that, so that a million keys leave the server something to
	// serve with.
	step      = 20 * time.Millisecond
	stepPause = 4
	// countEvery is how often many keys are counted, in case they have become few.
	countEvery = 2 * time.Second
)

func keepTTL(redis *miniredis.Miniredis) *ttlKeeper {
	k := &ttlKeeper{redis: redis, stop: make(chan struct{})}
	redis.ClockTTL(true)
	k.done.Go(k.run)
	return k
}

func (k *ttlKeeper) close() {
	close(k.stop)
	k.done.Wait()
}

func (k *ttlKeeper) run() {
	timer := time.NewTimer(step)
	defer timer.Stop()
	exact, last := true, time.Now()
	var counted time.Time // when the keys were counted; that takes about as long as a step
	for {
		select {
		case <-k.stop:
			return
		case <-timer.C:
		}
		began := time.Now()
		if !exact {
			k.redis.FastForward(began.Sub(last))
		}
		last = began
		took := time.Since(began)
		// What has passed between the last access and a change of ways is not taken
		// off: such a key lives longer, by less than one step.
		if exact || time.Since(counted) > countEvery {
			counted = time.Now()
			if few := k.keys() <= exactKeys; few != exact {
				exact = few
				k.redis.ClockTTL(exact)
				last = time.Now()
			}
		}
		timer.Reset(max(step, stepPause*took))
	}
}

// databases is how many databases Redis has by default, and miniredis at most
// usefully has.
const databases = 16

func (k *ttlKeeper) keys() int {
	n := 0
	for i := range databases {
		n += len(k.redis.DB(i).Keys())
	}
	return n
}
