package invariants

import (
	"fmt"
	"runtime/debug"
)

// FailStop is deferred at the top of what others call and might recover from: a
// panic in there is a bug of ours, the lock that it held is held for ever, and what
// it guards cannot be trusted. Going on would mean names that hang in silence, or
// two holders. So the process ends, from a goroutine that nobody recovers on.
func FailStop() {
	if v := recover(); v != nil {
		text := fmt.Sprintf("BUG: pawl: %v\n\n%s", v, debug.Stack())
		go func() { panic(text) }()
		select {}
	}
}
