// Package copies copies what must not be copied, for TestVet_CopiedHolds_AreFound.
package copies

import "github.com/pawl-lock/pawl/engine"

func hold(h *engine.Hold)          { _ = *h; held = *h }
func permits(p *engine.Permits)    { _ = *p; permitsHeld = *p }
func future(f *engine.Future[int]) { _ = *f; futureOf = *f }

var (
	held        engine.Hold
	permitsHeld engine.Permits
	futureOf    engine.Future[int]
)
