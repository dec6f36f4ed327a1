package enginetest

import (
	"strings"

	"github.com/pawl-lock/pawl/engine"
)

// reportHeld fails the test if it ends with holds. An engine that the test closed
// itself has none.
func (env *Env) reportHeld() {
	env.t.Helper()
	env.mu.Lock()
	defer env.mu.Unlock()
	for _, e := range env.mu.engines {
		if n := e.Stats().Held; n > 0 {
			env.t.Errorf("enginetest: the test ends with locks held (%d%s): unlock them, or close the engine in the test",
				n, env.heldNames(e))
		}
	}
}

// heldNames lists the keys in which the engine stands as an owner, for the report.
// A hold whose lock was taken away has none.
func (env *Env) heldNames(e *engine.Engine) string {
	var names []string
	for _, key := range env.server.Keys(env.config.DB) {
		for _, owner := range env.server.Owners(env.config.DB, key) { // of what is no lock: none
			if strings.HasPrefix(owner, e.ID()+":") && !strings.HasPrefix(owner, e.ID()+":-") {
				names = append(names, key)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}
