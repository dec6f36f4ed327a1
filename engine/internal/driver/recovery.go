package driver

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/resp"
)

// recoveryPort is the table as its Recovery knows it: the recovery.Port.
type recoveryPort Table

func (t *Table) newRecovery() *recovery.Recovery {
	return recovery.New(recovery.Config{
		Clock: t.World.Clock, Wheel: t.Timers, Client: t.Client, Shuffle: t.World.Shuffle,
		Engine: (*recoveryPort)(t), Keep: t.Keep,
	})
}

func (p *recoveryPort) Closing() bool                { return (*Table)(p).Closing() }
func (p *recoveryPort) Result(err error) lock.Result { return Classify(err) }

func (p *recoveryPort) AppendRelease(dst []byte, form resp.ScriptForm, r *recovery.Release, rest time.Duration) []byte {
	return (*Table)(p).AppendRelease(dst, form, r.Kind, r.Name, r.ID, rest)
}

// stalled is an entry as recovery lists it: a recovery.Stalled.
type stalled lock.Entry

func (s *stalled) Unwanted() *bool { return &s.entry().Cancelled }

func (s *stalled) entry() *lock.Entry { return (*lock.Entry)(s) }

func (s *stalled) Status() (urgent bool, route uint64) {
	r := s.entry()
	sh := ShardOf(r)
	sh.Lock()
	defer sh.Unlock()
	return r.Urgent(), r.Route
}

func (s *stalled) Advance(by *lock.Throttle) recovery.Outcome {
	r := s.entry()
	var rd lock.Ready
	sh := ShardOf(r)
	sh.Lock()
	r.Reconnected(by, &rd)
	sh.Unlock()
	sh.Table.Apply(&rd)
	if rd.Send == nil {
		return recovery.NothingToSend
	}
	sh.Lock()
	defer sh.Unlock()
	if r.Blocked() == lock.Disconnected {
		return recovery.StalledAgain
	}
	return recovery.Sent
}
