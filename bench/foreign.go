package bench

import (
	"fmt"
	"strconv"
	"time"
)

// foreignHolds are locks held by nobody of this process: written as Redisson would
// write them, and released as Redisson would.
type foreignHolds struct {
	admin *admin
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
	err := f.admin.each(len(f.names), 2, func(i int) {
		f.admin.add("HSET", f.names[i], "00000000-0000-4000-8000-000000000000:1", "1")
		f.admin.add("PEXPIRE", f.names[i], lease)
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
	err := f.admin.each(len(names), 2, func(i int) {
		f.admin.add("DEL", names[i])
		f.admin.add("PUBLISH", "redisson_lock__channel:{"+names[i]+"}", "0")
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
	return f.admin.each(len(names), 1, func(i int) { f.admin.add("DEL", names[i]) })
}
