package embedded

import (
	"regexp"
	"slices"
	"time"
)

// writeTimeout is how long a client may leave its replies and messages unread.
// miniredis holds its one lock while it hands out a message: without a limit, a
// subscriber that stands still stops the server for everybody.
const writeTimeout = 2 * time.Second

// conn is a client's connection, given up when the client does not read.
type conn struct{ *slow }

func (c *conn) Write(b []byte) (int, error) {
	if _, err := c.slow.Write(unwrapScriptError(b)); err != nil {
		// miniredis ignores the error; a reply that is half gone ends the connection.
		c.Close()
		return 0, err
	}
	return len(b), nil
}

// scriptError is how miniredis reports a command that failed inside a script.
var scriptError = regexp.MustCompile(`^-ERR Error compiling script \(new function\): \S*:\d+: ([A-Z]+ .*?) stack traceback:[^\r]*\r\n`)

// unwrapScriptError brings the command's own error to the front, where Redis has
// it: clients tell errors apart by the first word. A reply begins a write, because
// miniredis flushes after each command.
func unwrapScriptError(b []byte) []byte {
	if len(b) == 0 || b[0] != '-' {
		return b
	}
	m := scriptError.FindSubmatchIndex(b)
	if m == nil {
		return b
	}
	return slices.Concat([]byte("-"), b[m[2]:m[3]], []byte("\r\n"), b[m[1]:])
}
