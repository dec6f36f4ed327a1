package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// counts are what the servers have executed for clients.
type counts struct {
	known             bool // they count
	commands, scripts int64
	// at is the time of their clocks, on average: an answer that comes late counts what was
	// executed until then, and not what came while it was on its way.
	at time.Duration
}

// scriptCommands are the clientCommands that call a script.
var scriptCommands = []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"}

// clientCommands are commands that a script cannot call (Redis flags them
// noscript): a connection that sent one was a client. Others must not be counted, because
// commandstats and total_commands_processed count what a script calls like what a
// client sends.
var clientCommands = append([]string{
	"subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe",
	"multi", "exec", "watch", "wait", "role", "blpop",
}, scriptCommands...)

// counts returns what the servers have executed for clients so far. plain are commands that the
// client sends, too, and that no script of it calls.
func (s *Server) counts(plain ...string) (counts, error) {
	c := counts{known: s.comparable}
	if !c.known {
		return c, nil
	}
	for _, a := range s.fleet.Conns {
		fields, err := a.Info("all")
		if err != nil {
			return counts{}, fmt.Errorf("bench: INFO: %w", err)
		}
		scripts, err := callsOf(fields, scriptCommands)
		if err != nil {
			return counts{}, err
		}
		commands, err := callsOf(fields, slices.Concat(plain, clientCommands))
		if err != nil {
			return counts{}, err
		}
		c.commands, c.scripts = c.commands+commands, c.scripts+scripts
		c.at += clockOf(fields) / time.Duration(len(s.fleet.Conns))
	}
	return c, nil
}

// callsOf sums up the calls of commands.
func callsOf(fields map[string]string, names []string) (sum int64, err error) {
	for _, name := range names {
		calls, ok := strings.CutPrefix(fields["cmdstat_"+name], "calls=")
		if !ok {
			continue
		}
		calls, _, _ = strings.Cut(calls, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("bench: INFO commandstats: %q", fields["cmdstat_"+name])
		}
		sum += n
	}
	return sum, nil
}

// clockOf is the server's time. Redis 6.0 does not tell it: then it is the time here.
func clockOf(fields map[string]string) time.Duration {
	if us, err := strconv.ParseInt(fields["server_time_usec"], 10, 64); err == nil {
		return time.Duration(us) * time.Microsecond
	}
	return time.Duration(time.Now().UnixNano())
}

// since is what was executed from before on, and for how long.
func (c counts) since(before counts) counts {
	return counts{c.known && before.known, c.commands - before.commands, c.scripts - before.scripts, c.at - before.at}
}

// per returns commands and script calls for each of n, nil if they are not known.
func (c counts) per(n float64) (commands, scripts *float64) {
	if !c.known || n <= 0 {
		return nil, nil
	}
	perEach := func(sum int64) *float64 { q := float64(sum) / n; return &q }
	return perEach(c.commands), perEach(c.scripts)
}
