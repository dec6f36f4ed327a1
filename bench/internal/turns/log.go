package turns

import (
	"sync"
	"time"
)

// Log notes the turns of this process. Those who call it have the lock, but for calls of Now.
// Invariants:
//
//  1. The last of all is the present turn, or the last one that has ended.
//  2. begins is true from Begin until the grant that it is about is noted.
type Log struct {
	process int
	// start is an instant on the wall clock, which all processes have in common. The monotonic
	// clock goes on evenly from there.
	start time.Time
	mu    struct {
		sync.Mutex
		all    []Turn
		begins bool
	}
}

// NewLog returns the log of that process.
func NewLog(process int) *Log { return &Log{process: process, start: time.Now()} }

// Now is the time, as the instants of a Turn.
func (l *Log) Now() int64 { return l.start.UnixNano() + int64(time.Since(l.start)) }

// Begin says that the next grant to be noted is the server's.
func (l *Log) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.begins = true
}

// Granted notes that the lock, for which the caller asked then, has been granted.
func (l *Log) Granted(asked int64) {
	now := l.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.begins || len(l.mu.all) == 0 {
		l.mu.begins = false
		l.mu.all = append(l.mu.all, Turn{Process: l.process, Asked: asked, Granted: now})
	}
	l.mu.all[len(l.mu.all)-1].Pairs++
}

// Released notes that the caller is about to unlock. If others of the process get the lock then,
// the turn ends with the last of them.
func (l *Log) Released() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.all[len(l.mu.all)-1].Released = l.Now()
}

// All returns the turns so far.
func (l *Log) All() []Turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.all[:len(l.mu.all):len(l.mu.all)]
}
