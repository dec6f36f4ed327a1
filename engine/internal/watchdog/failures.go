package watchdog

import (
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Failures are the servers whose renewals fail, so that this is reported once an outage, and a loss can
// say why. mu is taken without any lock of this package, and takes none.
type Failures struct {
	mu    sync.Mutex
	since map[string]failure // the latest, by address
}

type failure struct {
	at  clock.Instant
	err error
}

// Latest is the latest failure, if it was within a lease.
func (f *Failures) Latest(addr string, now clock.Instant, lease time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, failed := f.since[addr]; failed && now.Sub(last.at) < lease {
		return last.err
	}
	return nil
}

// Again notes a failure, and reports whether there was another one within a lease: since then nothing
// new is known.
func (f *Failures) Again(addr string, now clock.Instant, lease time.Duration, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since == nil || len(f.since) > 1000 { // servers announce ever new addresses
		f.since = make(map[string]failure)
	}
	last, failed := f.since[addr]
	f.since[addr] = failure{now, err}
	return failed && now.Sub(last.at) < lease
}

// Forget is called when an outage ends.
func (f *Failures) Forget(addr string) {
	f.mu.Lock()
	delete(f.since, addr)
	f.mu.Unlock()
}
