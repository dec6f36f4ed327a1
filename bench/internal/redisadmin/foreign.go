package redisadmin

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ForeignHolds are locks held by nobody of this process: written as Redisson would
// write them, and released as Redisson would.
type ForeignHolds struct {
	fleet *Fleet
	names []string
	held  int // names[freed:held] are held
	freed int
}

// NewForeignHolds returns the holds of names, none of which is taken yet.
func NewForeignHolds(fleet *Fleet, names []string) *ForeignHolds {
	return &ForeignHolds{fleet: fleet, names: names}
}

// ForeignBatch is how many are released in one write.
const ForeignBatch = 250

// Take locks all names, for longer than the run needs: should it be killed, they
// end by themselves.
func (f *ForeignHolds) Take(idle time.Duration) error {
	lease := strconv.FormatInt((2*idle + 30*time.Minute).Milliseconds(), 10)
	f.held = len(f.names)
	err := f.each(f.names, 2, func(a *Conn, name string) {
		a.add("HSET", name, "00000000-0000-4000-8000-000000000000:1", "1")
		a.add("PEXPIRE", name, lease)
	})
	if err != nil {
		return fmt.Errorf("bench: taking the locks: %w", err)
	}
	return nil
}

// ReleaseNext releases up to n names and returns when.
func (f *ForeignHolds) ReleaseNext(n int) (time.Time, error) {
	names := f.names[f.freed:min(f.freed+n, f.held)]
	now := time.Now()
	answers := 2
	if f.fleet.Sharded {
		answers = 3
	}
	err := f.each(names, answers, func(a *Conn, name string) {
		channel := "redisson_lock__channel:{" + name + "}"
		a.add("DEL", name)
		a.add("PUBLISH", channel, "0")
		if f.fleet.Sharded { // whichever they listen to
			a.add("SPUBLISH", channel, "0")
		}
	})
	if err != nil {
		return now, fmt.Errorf("bench: releasing the locks: %w", err)
	}
	f.freed += len(names)
	return now, nil
}

// Release releases what is held still, and wakes nobody.
func (f *ForeignHolds) Release() error {
	names := f.names[f.freed:f.held]
	f.freed = f.held
	return f.each(names, 1, func(a *Conn, name string) { a.add("DEL", name) })
}

// each sends for every name, at its server, the commands that add appends. A server that
// fails keeps no other from being asked.
func (f *ForeignHolds) each(names []string, answers int, add func(a *Conn, name string)) (err error) {
	for a, part := range f.fleet.parts(names) {
		err = errors.Join(err, a.each(len(part), answers, func(i int) { add(a, part[i]) }))
	}
	return err
}
