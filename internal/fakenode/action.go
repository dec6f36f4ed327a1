package fakenode

import "github.com/tidwall/redcon"

// Error lines as Redis 7 sends them, for Error.
const (
	Busy        = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
	ClusterDown = "CLUSTERDOWN The cluster is down"
	Loading     = "LOADING Redis is loading the dataset in memory"
	MasterDown  = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
	MisConf     = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error."
	NoAuth      = "NOAUTH Authentication required."
	NoReplicas  = "NOREPLICAS Not enough good replicas to write."
	NoScript    = "NOSCRIPT No matching script. Please use EVAL."
	OOM         = "OOM command not allowed when used memory > 'maxmemory'."
	ReadOnly    = "READONLY You can't write against a read only replica."
	TryAgain    = "TRYAGAIN Multiple keys request during rehashing of slot"
	WrongPass   = "WRONGPASS invalid username-password pair or user is disabled."
)

// Action is what becomes of a command. Actions of one connection run one after
// the other, in the order of its commands, on a goroutine of their own: while
// one waits, further commands are still read and recorded.
type Action struct {
	run  func(c *Conn, cmd Command)
	stop *Gate // the reader waits here after this command
}

// Func is an Action of the test's own. It may wait on what the test does.
func Func(f func(c *Conn, cmd Command)) Action { return Action{run: f} }

// Default answers as the node does without a rule.
func Default() Action { return Func((*Conn).answer) }

// Raw answers with these bytes, whatever they are.
func Raw(b string) Action { return Func(func(c *Conn, _ Command) { c.Write([]byte(b)) }) }

// Int answers with an integer.
func Int(x int64) Action { return Raw(string(redcon.AppendInt(nil, x))) }

// Bulk answers with a string.
func Bulk(s string) Action { return Raw(string(redcon.AppendBulkString(nil, s))) }

// Error answers with an error line such as Busy.
func Error(line string) Action { return Raw("-" + line + "\r\n") }

// Drop answers nothing, so every later answer is taken for an earlier one, or
// awaited in vain.
func Drop() Action { return Func(func(*Conn, Command) {}) }

// Close ends the connection in order (FIN).
func Close() Action { return Func(func(c *Conn, _ Command) { c.Close() }) }

// Reset ends the connection at once (RST, over TCP).
func Reset() Action { return Func(func(c *Conn, _ Command) { c.Reset() }) }

// HalfThenReset answers with the first half of the bytes and resets.
func HalfThenReset(b string) Action { return Seq(Raw(b[:len(b)/2]), Reset()) }

// Drip answers byte by byte, each in a write of its own.
func Drip(b string) Action {
	return Func(func(c *Conn, _ Command) {
		for i := range len(b) {
			c.Write([]byte{b[i]})
		}
	})
}

// Hold runs a once the gate lets it pass; later answers of the connection wait
// behind it.
func Hold(g *Gate, a Action) Action {
	return Action{stop: a.stop, run: func(c *Conn, cmd Command) {
		if g.pass(c.ended) {
			a.run(c, cmd)
		}
	}}
}

// StopReading runs a and stops reading the connection until the gate lets it
// pass: the client's bytes fill the kernel's buffers. What came in the same
// read is still recorded. See ReadBuffer.
func StopReading(g *Gate, a Action) Action { return Action{run: a.run, stop: g} }

// Twice runs a twice: an answer that nobody asked for.
func Twice(a Action) Action { return Seq(a, a) }

// Seq runs actions one after the other. Seq(Default(), Reset()) executes and
// then resets.
func Seq(actions ...Action) Action {
	seq := Func(func(c *Conn, cmd Command) {
		for _, a := range actions {
			a.run(c, cmd)
		}
	})
	for _, a := range actions {
		if a.stop != nil {
			seq.stop = a.stop
		}
	}
	return seq
}
