package engine

import (
	"log/slog"
	"runtime"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// holding is what the engine has of a hold: the machine's, and its place among the
// renewals. The user has a Hold, which points here. (Two objects, so that a Hold that the
// user dropped can be noticed.) The shard's lock guards its fields.
type holding struct {
	drive.Holding
	handle *Hold // keeps the user's Hold alive until the first renewal
	done   chan struct{}
}

// NewHold implements drive.Engine.
func (f *front) NewHold(s *drive.Shard, r *machine.Resource, want machine.Acks) *machine.Hold {
	h := new(holding)
	h.Init(h, s, r, want)
	h.handle = &Hold{h: h}
	return &h.Hold
}

// holdingOf is the engine's side of a hold.
func holdingOf(h *machine.Hold) *holding { return h.Port.(*holding) }

// engine is the engine that the hold is of.
func (h *holding) engine() *Engine { return engineOf(h.Shard) }

// inner is the machine's side; nil of nil.
func (h *holding) inner() *machine.Hold {
	if h == nil {
		return nil
	}
	return &h.Hold
}

// The methods below are the half of drive.Hold that is told.

func (h *holding) Ended(why machine.Loss) {
	if why == 0 {
		h.engine().hookReleased(h)
	} else {
		h.engine().hookLost(h, LostReason(why))
	}
	h.handle = nil
}

func (h *holding) Lost(why machine.Loss) { h.engine().logLost(h, LostReason(why)) }

func (h *holding) Told() {
	if h.done != nil {
		close(h.done)
	}
}

// Confirmed lets go of the user's Hold at its first renewal: if nobody else has
// it, the garbage collector will tell. Holds that are over before cost nothing.
func (h *holding) Confirmed() {
	if h.handle == nil {
		return
	}
	runtime.AddCleanup(h.handle, (*holding).leaked, h)
	h.handle = nil
}

// leaked runs when the user's Hold is garbage. If the hold is live nobody can
// unlock it any more. It is counted and reported, never released: the work under
// it may still be going on.
func (h *holding) leaked() {
	h.Shard.Lock()
	yes := h.IsLive()
	if yes {
		h.Shard.Counters().Leaked++
	}
	h.Shard.Unlock()
	if yes {
		h.engine().log(slog.LevelError, "pawl: a hold was dropped without Unlock; the lock stays held until the engine is closed",
			"lock", reason.Shorten(h.Name))
	}
}
