package driver

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
)

// The methods below, with Closing, implement recovery.Port.

// Result says what an error of resp says about a command.
func (t *Table) Result(err error) lock.Result { return Classify(err) }

// AppendRelease encodes a release, or a retire if a MinHold has something left.
func (t *Table) AppendRelease(dst []byte, form resp.ScriptForm, r *recovery.Release, rest time.Duration) []byte {
	k := r.Kind
	owner, nobody := k.Owner(t.ID, r.ID), k.Owner(t.ID, -r.ID)
	switch {
	case k.Traits().Waiting == lock.Queueing:
		return script.AppendFairRelease(dst, form, t.queue(k, r.Name), owner, nobody, max(rest, 0))
	case rest > 0:
		return k.AppendRetire(dst, form, r.Name, owner, nobody, rest, t.Verb())
	}
	return k.AppendRelease(dst, form, r.Name, owner, t.Verb())
}

// The methods below have an entry implement recovery.Stalled.

func (r *entry) Unwanted() *bool { return &r.Cancelled }

func (r *entry) Status() (stalled, urgent bool, route uint64) {
	sh := ShardOf(r.core())
	sh.Lock()
	defer sh.Unlock()
	return r.core().Blocked() == lock.Disconnected, r.core().Urgent(), r.Route
}

func (r *entry) Advance(by *lock.Throttle) (sends bool) {
	sh := ShardOf(r.core())
	var rd lock.Ready
	sh.Lock()
	r.core().Reconnected(by, &rd)
	sh.finish(&rd)
	return rd.Send != nil
}
