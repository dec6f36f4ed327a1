package engine

import (
	"cmp"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/resp"
)

// recoveryPort is the engine as its Recovery knows it: the recovery.Port.
type recoveryPort Engine

func newRecovery(e *Engine) *recovery.Recovery {
	cfg := recovery.Config{Clock: e.clock, Wheel: e.table.Timers, Client: e.table.Client, Shuffle: e.world.Shuffle, Engine: (*recoveryPort)(e)}
	if topologies[e.cfg.Topology] != resp.Standalone {
		cfg.Keep = cmp.Or(e.cfg.remember, recovery.RememberFor)
	}
	return recovery.New(cfg)
}

func (p *recoveryPort) Closing() bool                     { return p.table.Closing() }
func (p *recoveryPort) Verdict(err error) machine.Verdict { return drive.Classify(err) }

func (p *recoveryPort) Stalled(r *machine.Resource) (urgent bool, route uint64) {
	sh := drive.ShardOf(r)
	sh.Lock()
	defer sh.Unlock()
	return r.Urgent(), r.Route
}

func (p *recoveryPort) GoOn(r *machine.Resource, by *machine.Pace) recovery.Went {
	var fx machine.Effects
	sh := drive.ShardOf(r)
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
	return p.table.AppendRelease(dst, form, r.Kind, r.Name, r.ID, rest)
}
