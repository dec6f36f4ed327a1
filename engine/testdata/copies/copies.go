// Package copies copies what must not be copied, for TestVet_CopiedHolds_AreFound.
package copies

import "github.com/pawl-lock/pawl/engine"

func hold(h *engine.Hold)          { _ = *h; held = *h }
func fenced(h *engine.FencedHold)  { _ = *h; fencedHeld = *h }
func permit(h *engine.PermitHold)  { _ = *h; permitHeld = *h }
func many(h *engine.MultiHold)     { _ = *h; multiHeld = *h }
func quorum(h *engine.QuorumHold)  { _ = *h; quorumHeld = *h }
func permits(p *engine.Permits)    { _ = *p; permitsHeld = *p }
func future(f *engine.Future[int]) { _ = *f; futureOf = *f }

var (
	held        engine.Hold
	fencedHeld  engine.FencedHold
	permitHeld  engine.PermitHold
	multiHeld   engine.MultiHold
	quorumHeld  engine.QuorumHold
	permitsHeld engine.Permits
	futureOf    engine.Future[int]
)
