package drive

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
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

func (p *recoveryPort) Closing() bool                     { return (*Table)(p).Closing() }
func (p *recoveryPort) Verdict(err error) machine.Verdict { return Classify(err) }

func (p *recoveryPort) Stalled(r *machine.Resource) (urgent bool, route uint64) {
	sh := ShardOf(r)
	sh.Lock()
	defer sh.Unlock()
	return r.Urgent(), r.Route
}

func (p *recoveryPort) GoOn(r *machine.Resource, by *machine.Pace) recovery.Went {
	var fx machine.Effects
	sh := ShardOf(r)
	sh.Lock()
	r.Resume(by, &fx)
	sh.Unlock()
	sh.Table.Run(&fx)
	if fx.Send == nil {
		return recovery.NothingToSend
	}
	sh.Lock()
	defer sh.Unlock()
	if r.Held() == machine.Stalled {
		return recovery.StalledAgain
	}
	return recovery.Sent
}

func (p *recoveryPort) AppendRelease(dst []byte, form resp.Form, r *recovery.Release, rest time.Duration) []byte {
	return (*Table)(p).AppendRelease(dst, form, r.Kind, r.Name, r.ID, rest)
}
