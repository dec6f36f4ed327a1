package clock

import "time"

// virtualClock is the clock of a testing/synctest bubble: its time is package
// time's alone, nothing sleeps, and nothing of it may get into the machine's clock.
type virtualClock struct{}

// bubbleStart is when the time of every bubble starts. So all clocks of a bubble
// have one origin without sharing anything.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (virtualClock) Now() Instant    { return Instant(origin + time.Since(bubbleStart)) }
func (virtualClock) Stamp() Instant  { return virtualClock{}.Now() }
func (virtualClock) Wall() time.Time { return time.Now() }

// virtual reports whether now was read in a bubble. Times there have no monotonic
// reading; everywhere else time.Now gives one, and Round(0) strips it.
func virtual(now time.Time) bool { return now == now.Round(0) }
