package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/pawl-lock/pawl/bench/internal/process"
)

// Result is what one run measured. Its JSON form is a public format: fields are
// added, never changed.
type Result struct {
	Scenario string `json:"scenario"`
	// Client is what was measured: "pawl", or a peer's name.
	Client string `json:"client"`
	Server string `json:"server"`
	// Comparable is false if the server was the embedded one, or would not say what
	// it is.
	Comparable bool `json:"comparable"`
	// SharedServer is true if somebody else was connected to the server at the beginning
	// or at the end. Then the commands are not ours alone, so they are not told, and the
	// other figures may have suffered.
	SharedServer bool `json:"shared_server"`
	Goroutines   int  `json:"goroutines"`
	// Count is the number of futures or holds; 0 in the closed loops.
	Count int `json:"count"`
	// DurationS is the time in which the pairs were made; idle time in between,
	// asked for with Config.Duration, is not part of it.
	DurationS float64 `json:"duration_s"`
	// Pairs are acquisitions that were granted and released.
	Pairs          int64   `json:"pairs"`
	PairsPerSecond float64 `json:"pairs_per_second"`
	// ClientCPUUsPerPair is user and system time of this process, or of all that contend, by
	// pairs; 0 if the platform does not tell.
	ClientCPUUsPerPair float64 `json:"client_cpu_us_per_pair"`
	// LatencyUs is of lock + unlock in the closed loops, from a release to the next
	// grant in Waiters, of the acquisition in Held and in Hot between processes.
	LatencyUs     Latency `json:"latency_us"`
	AllocsPerPair float64 `json:"allocs_per_pair"`
	// HeapBytes is the growth of the live heap, after garbage collection: for each
	// pending future (Waiters) or hold (Held); over the whole measured time in the
	// closed loops of one process.
	HeapBytes int64 `json:"heap_bytes"`
	// GoroutinesPeak is the most goroutines that were seen above those of the idle
	// client and the workers of one process.
	GoroutinesPeak int `json:"goroutines_peak"`
	// CommandsPerPair is counted by the server: script calls, subscriptions and the
	// like, not what scripts call inside; in Held, renewals too. nil if the server
	// does not count, or counts those of others, too.
	CommandsPerPair *float64 `json:"commands_per_pair"`
	// ScriptCallsPerPair are those of them that call a script. In Hot both are counted from the
	// beginning to the end of the duration, before the last who wait are served.
	ScriptCallsPerPair *float64 `json:"script_calls_per_pair"`
	// Fairness is pairs per goroutine, in Hot between processes per process; zero for scenarios
	// without workers.
	Fairness Fairness `json:"fairness"`
	// Errors are acquisitions and releases that failed. FirstError is one of them.
	Errors     int64  `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
	// Stuck are workers or futures that were still waiting 10 s after the end.
	Stuck     int       `json:"stuck"`
	Leftovers Leftovers `json:"leftovers"`

	Conditions

	*WaitersResult
	*HeldResult
	*ProcessesResult
}

// WaitersResult is what only Waiters measures.
type WaitersResult struct {
	Names     int    `json:"names"`
	Finish    string `json:"finish"`
	Served    int    `json:"served"`
	Cancelled int    `json:"cancelled"`
	// Overloaded is how often LockAsync had to be called again because too many
	// commands were in flight.
	Overloaded int `json:"overloaded"`
	// IdleS is for how long nothing happened, IdleCPUPercent what this process used
	// meanwhile, of one CPU.
	IdleS          float64 `json:"idle_s"`
	IdleCPUPercent float64 `json:"idle_cpu_percent"`
}

// HeldResult is what only Held measures.
type HeldResult struct {
	HeldS          float64 `json:"held_s"`
	HeldCPUPercent float64 `json:"held_cpu_percent"`
	// AllRenewed is false if the time was too short for every hold to be renewed once.
	// A hold takes more memory from its first renewal on, so HeapBytes is too small then.
	AllRenewed bool `json:"all_renewed"`
	// Lost are holds that ended before they were unlocked.
	Lost int `json:"lost"`
	// Renewals were acknowledged by the server while all were held.
	Renewals int64 `json:"renewals"`
	// RenewalsPerSecond is over the full seconds of that time.
	RenewalsPerSecond Spread `json:"renewals_per_second"`
}

// ProcessesResult is what only Hot between processes measures, from the beginning to the end of
// the duration. A turn is what a process has of the lock from a grant by the server to
// the release; with one goroutine each it is a pair. Each turn counts as one hand-over.
type ProcessesResult struct {
	Processes int   `json:"processes"`
	Turns     int64 `json:"turns"`
	// HandOverUs is from the call of the Unlock that ended a turn to the return of the Lock that
	// began the next, in another process. LatencyUs is of these Locks: how long they waited.
	HandOverUs Latency `json:"hand_over_us"`
	// ScriptCallsPerHandOver and CommandsPerHandOver are counted by the server, as
	// CommandsPerPair is, and nil when that is. MessagesPerHandOver are messages that reached
	// processes, as their engines count them.
	ScriptCallsPerHandOver *float64 `json:"script_calls_per_hand_over"`
	CommandsPerHandOver    *float64 `json:"commands_per_hand_over"`
	MessagesPerHandOver    float64  `json:"messages_per_hand_over"`
	// Shares are the pairs of the processes relative to an even share.
	Shares Shares `json:"shares"`
	// WithoutTurn are processes that never had the lock.
	WithoutTurn int `json:"without_turn"`
	// Repeats are turns that followed one of the same process.
	Repeats int64 `json:"repeats"`
	// Overtaken is the largest number of turns of other processes that began in one wait and
	// were asked for later.
	Overtaken int `json:"overtaken"`
	// Overlaps are turns that began before the turn before had ended: two processes had the
	// lock at once.
	Overlaps int64 `json:"overlaps"`
	// ProcessRSSBytes is the most memory that one of the processes had.
	ProcessRSSBytes int64 `json:"process_rss_bytes"`
}

// Shares are relative to an even share, which is 1.
type Shares struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Latency holds percentiles, in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Fairness holds pairs per goroutine.
type Fairness struct {
	Min  int64   `json:"min"`
	Max  int64   `json:"max"`
	Mean float64 `json:"mean"`
}

// Spread is how evenly something was done.
type Spread struct {
	Min  int64   `json:"min"`
	Max  int64   `json:"max"`
	Mean float64 `json:"mean"`
}

// Leftovers is what the server had of the run when everything was released.
type Leftovers struct {
	Keys     int `json:"keys"`
	Channels int `json:"channels"`
	// Unknown is why the server could not be asked; empty if it could.
	Unknown string `json:"unknown,omitempty"`
}

// Err is nil if everything that was locked was released, and nobody
// waited in vain: a figure of such a run may be quoted.
func (r *Result) Err() error {
	var bad []error
	add := func(n int64, what string) {
		if n > 0 {
			bad = append(bad, fmt.Errorf("bench: %d %s", n, what))
		}
	}
	add(int64(r.Stuck), "still waited 10 s after the end")
	if r.Errors > 0 {
		bad = append(bad, fmt.Errorf("bench: %d operations failed, one of them: %s", r.Errors, r.FirstError))
	}
	if r.HeldResult != nil {
		add(int64(r.Lost), "holds were lost")
	}
	if r.ProcessesResult != nil {
		add(r.Overlaps, "turns began before the one before had ended: two processes had the lock at once")
	}
	add(int64(r.Leftovers.Keys), "keys are left on the server")
	add(int64(r.Leftovers.Channels), "channels are still subscribed to")
	if r.Leftovers.Unknown != "" {
		bad = append(bad, fmt.Errorf("bench: what is left is not known: %s", r.Leftovers.Unknown))
	}
	return errors.Join(bad...)
}

func (r *Result) failed(err error) {
	r.Errors++
	if r.FirstError == "" {
		r.FirstError = err.Error()
	}
}

// latencyOf reads a histogram.
func latencyOf(h *hdrhistogram.Histogram) Latency {
	return Latency{
		P50: us(h.ValueAtQuantile(50)), P99: us(h.ValueAtQuantile(99)),
		P999: us(h.ValueAtQuantile(99.9)), Max: us(h.Max()),
	}
}

func us(ns int64) float64 { return float64(ns) / float64(time.Microsecond) }

// finish computes the ratios. The counts are those of so many pairs, which may be some of all.
func (r *Result) finish(u process.Usage, executed counts, counted float64, h *hdrhistogram.Histogram) {
	r.DurationS = u.Elapsed.Seconds()
	r.LatencyUs = latencyOf(h)
	if r.DurationS > 0 {
		r.PairsPerSecond = float64(r.Pairs) / r.DurationS
	}
	if r.Pairs == 0 {
		return
	}
	pairs := float64(r.Pairs)
	r.ClientCPUUsPerPair = us(int64(u.CPU)) / pairs
	r.AllocsPerPair = float64(u.Allocs) / pairs
	r.CommandsPerPair, r.ScriptCallsPerPair = executed.per(counted)
}

// hideCounts takes out what may be the work of others, too.
func (r *Result) hideCounts() {
	r.SharedServer, r.CommandsPerPair, r.ScriptCallsPerPair = true, nil, nil
	if p := r.ProcessesResult; p != nil {
		p.CommandsPerHandOver, p.ScriptCallsPerHandOver = nil, nil
	}
}
