package turns

// Turn is what a process has of the lock, from a grant by the server to the release. Hand-overs
// inside the process belong to it. Its instants are nanoseconds of a clock that all processes read.
//
// Granted is noted after the grant and Released before the release, so the turns of a lock that
// excludes never overlap.
type Turn struct {
	Process  int   `json:"p"`
	Asked    int64 `json:"a"` // Lock was called, by the goroutine that the server granted it
	Granted  int64 `json:"g"` // that call returned
	Released int64 `json:"r"` // the last Unlock of the turn was called
	Pairs    int64 `json:"n"` // goroutines that had the lock one after the other
}

// Window is the time that is measured, as the instants of a Turn. A turn belongs to it if it was
// granted in it.
type Window struct{ From, To int64 }

func (w Window) has(t Turn) bool { return w.From <= t.Granted && t.Granted < w.To }
