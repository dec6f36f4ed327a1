package bench

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// foreignHolds are locks held by nobody of this process: written as Redisson would
// write them, and released as Redisson would.
type foreignHolds struct {
	fleet *fleet
	names []string
	held  int // names[freed:held] are held
	freed int
}

// foreignBatch is how many are released in one write.
const foreignBatch = 250

// take locks all names, for longer than the run needs: should it be killed, they
// end by themselves.
func (f *foreignHolds) take(idle time.Duration) error {
	lease := strconv.FormatInt((2*idle + 30*time.Minute).Milliseconds(), 10)
	f.held = len(f.names)
	err := f.each(f.names, 2, func(a *admin, name string) {
		a.add("HSET", name, "00000000-0000-4000-8000-000000000000:1", "1")
		a.add("PEXPIRE", name, lease)
	})
	if err != nil {
		return fmt.Errorf("bench: taking the locks: %w", err)
	}
	return nil
}

// releaseNext releases up to n names and returns when.
func (f *foreignHolds) releaseNext(n int) (time.Time, error) {
	names := f.names[f.freed:min(f.freed+n, f.held)]
	now := time.Now()
	answers := 2
	if f.fleet.sharded {
		answers = 3
	}
	err := f.each(names, answers, func(a *admin, name string) {
		channel := "redisson_lock__channel:{" + name + "}"
		a.add("DEL", name)
		a.add("PUBLISH", channel, "0")
		if f.fleet.sharded { // whichever they listen to
			a.add("SPUBLISH", channel, "0")
		}
	})
	if err != nil {
		return now, fmt.Errorf("bench: releasing the locks: %w", err)
	}
	f.freed += len(names)
	return now, nil
}

// release releases what is held still, and wakes nobody.
func (f *foreignHolds) release() error {
	names := f.names[f.freed:f.held]
	f.freed = f.held
	return f.each(names, 1, func(a *admin, name string) { a.add("DEL", name) })
}

// each sends for every name, at its server, the commands that add appends. A server that
// fails keeps no other from being asked.
func (f *foreignHolds) each(names []string, answers int, add func(a *admin, name string)) (err error) {
	for a, part := range f.fleet.parts(names) {
		err = errors.Join(err, a.each(len(part), answers, func(i int) { add(a, part[i]) }))
	}
	return err
}
