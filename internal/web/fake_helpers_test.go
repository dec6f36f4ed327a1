package web_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// fake has locks that a test makes up.
type fake struct {
	mu    sync.Mutex
	locks map[string]*engine.LockInfo
	ends  time.Time // of all leases, if it is set
	err   error
	looks int
}

func (f *fake) List(context.Context, string) iter.Seq2[*engine.LockInfo, error] {
	return func(yield func(*engine.LockInfo, error) bool) {
		f.mu.Lock()
		f.looks++
		err := f.err
		all := make([]*engine.LockInfo, 0, len(f.locks))
		for _, l := range f.locks {
			if !f.ends.IsZero() {
				leased := *l
				leased.TTL = time.Until(f.ends)
				l = &leased
			}
			all = append(all, l)
		}
		f.mu.Unlock()
		for _, l := range all {
			if !yield(l, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func (f *fake) Inspect(_ context.Context, name string) (*engine.LockInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.locks[name]; l != nil {
		return l, nil
	}
	return &engine.LockInfo{Name: name}, f.err
}

// hold makes a lock that somebody holds.
func (f *fake) hold(name, holder string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locks == nil {
		f.locks = make(map[string]*engine.LockInfo)
	}
	f.locks[name] = &engine.LockInfo{
		Name: name, Kind: "mutex", Locked: true, Mode: "exclusive", TTL: 30 * time.Second,
		Holders: []engine.HolderInfo{{Holder: engine.Holder{ID: holder, Count: 1}}},
	}
}

// many makes n locks.
func (f *fake) many(n int, holder string) {
	for i := range n {
		f.hold(fmt.Sprintf("orders:%05d", i), holder)
	}
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}
