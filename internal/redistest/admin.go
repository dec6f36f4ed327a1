package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// The admin client's user, where a test sets users of its own.
const (
	adminUser     = "redistest-admin"
	adminPassword = "redistest"
)

// adminTimeout bounds one admin command; a stopped server lets it run out.
const adminTimeout = 10 * time.Second

// ReplyError is an error reply, the whole line: "WRONGTYPE Operation against ...".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Do runs one command as the admin, over the unix socket, on a connection of its
// own. It returns a string, int64, nil or []any of these; an error reply is a
// ReplyError, inside an array an element. It reads with a few lines of its own,
// so that the tests of package resp do not judge resp by resp.
func (p *Process) Do(words ...string) (any, error) {
	conn, err := net.DialTimeout("unix", p.Socket(), adminTimeout)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(adminTimeout)); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	r := bufio.NewReader(conn)
	call := func(words ...string) (any, error) {
		if _, err := io.WriteString(conn, encode(words)); err != nil {
			return nil, fmt.Errorf("redistest: %s: %w", words[0], err)
		}
		v, err := decode(r)
		if err != nil {
			return nil, fmt.Errorf("redistest: %s: %w", words[0], err)
		}
		if refused, ok := v.(ReplyError); ok {
			return nil, refused
		}
		return v, nil
	}
	if auth := p.adminAuth(); auth != nil {
		if _, err := call(auth...); err != nil {
			return nil, err
		}
	}
	return call(words...)
}

func (p *Process) adminAuth() []string {
	switch {
	case len(p.cfg.Users) > 0:
		return []string{"AUTH", adminUser, adminPassword}
	case p.cfg.Password != "":
		return []string{"AUTH", p.cfg.Password}
	}
	return nil
}

// CommandStats returns how often each command was executed since the server
// started or CONFIG RESETSTAT, by lower-case name, subcommands as "client|id".
// Commands called by a script count too.
func (p *Process) CommandStats() (map[string]int64, error) {
	v, err := p.Do("INFO", "commandstats")
	if err != nil {
		return nil, err
	}
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("redistest: INFO answered %T", v)
	}
	stats := make(map[string]int64)
	for line := range strings.Lines(text) {
		// cmdstat_get:calls=12,usec=34,...
		rest, ok := strings.CutPrefix(line, "cmdstat_")
		if !ok {
			continue
		}
		name, fields, _ := strings.Cut(rest, ":calls=")
		calls, _, _ := strings.Cut(fields, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redistest: INFO commandstats: %q", line)
		}
		stats[name] = n
	}
	return stats, nil
}

func encode(words []string) string {
	var b strings.Builder
	b.WriteString("*" + strconv.Itoa(len(words)) + "\r\n")
	for _, w := range words {
		b.WriteString("$" + strconv.Itoa(len(w)) + "\r\n" + w + "\r\n")
	}
	return b.String()
}

// decode reads one RESP2 reply of a server that is trusted.
func decode(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty line for a reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return ReplyError(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		return nil, err
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case kind == '*':
		all := make([]any, n)
		for i := range all {
			if all[i], err = decode(r); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("unexpected reply %q", line)
}
