package redistest

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Ability is something that servers of some generations, or builds, cannot do.
type Ability int

const (
	// TLSPorts are a matter of the build.
	TLSPorts Ability = iota
	// ShardedChannels are SSUBSCRIBE and its relatives, from Redis 7.0 on.
	ShardedChannels
	// Hostnames of the nodes of a cluster are announced from Redis 7.0 on.
	Hostnames
	// Subcommands have counters of their own from Redis 7.0 on.
	Subcommands
	// ScriptErrorCodes: an error inside a script arrives with its own code from Redis 7.0 on.
	ScriptErrorCodes
	// ExpiryConditions are NX, XX, GT and LT of PEXPIRE, from Redis 7.0 on.
	ExpiryConditions
	// SlotRanges are a form of CLUSTER ADDSLOTS, from Redis 7.0 on.
	SlotRanges
	// ClusterDatabases are databases other than 0 in a cluster, from Valkey 9.0 on.
	ClusterDatabases
	// SlotMigration moves a slot at once, from Valkey 9.0 and Redis 8.4 on.
	SlotMigration
)

func (a Ability) String() string {
	return [...]string{"TLS", "sharded channels", "hostnames in a cluster", "counters of subcommands", "codes of errors inside scripts", "conditions of PEXPIRE", "ranges of slots", "databases in a cluster", "atomic slot migration"}[a]
}

// Needs has Start skip the test, with the reason, if the server that it would start
// cannot do something of it. TLS and ClientCerts imply TLSPorts.
func Needs(abilities ...Ability) Option {
	return func(c *Config) { c.needs = append(c.needs, abilities...) }
}

// missing says what a server of this configuration would have to be able to do, and
// cannot; "" if nothing.
func (c *Config) missing() string {
	needs := c.needs
	if c.TLS {
		needs = append(needs[:len(needs):len(needs)], TLSPorts)
	}
	p := programAt(c.Binary)
	for _, a := range needs {
		if !p.can(a) {
			return fmt.Sprintf("NOT TESTED ON %s: it has no %s", p.version, a)
		}
	}
	return ""
}

// Can reports whether the server that Start would start can do this.
func Can(a Ability, opts ...Option) bool {
	var cfg Config
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.Binary == "" {
		cfg.Binary, _ = Binary() // without one Start says so
	}
	return programAt(cfg.Binary).can(a)
}

// Can reports whether the server can do this.
func (p *Process) Can(a Ability) bool { return programAt(p.cfg.Binary).can(a) }

// Version is what the server calls itself, "Redis 7.0.15" for instance.
func (p *Process) Version() string { return programAt(p.cfg.Binary).version }

// program is a server's binary.
type program struct {
	version string
	seven   bool // Redis 7.0 or later; all of Valkey is
	moves   bool // slots at once: Valkey 9.0 or later, Redis 8.4 or later
	nine    bool // Valkey 9.0 or later
	tls     bool
}

func (p program) can(a Ability) bool {
	switch a {
	case TLSPorts:
		return p.tls
	case ClusterDatabases:
		return p.nine
	case SlotMigration:
		return p.moves
	}
	return p.seven
}

var programs sync.Map // of path to func() program

// programAt describes the binary at a path; it is asked once.
func programAt(path string) program {
	ask, _ := programs.LoadOrStore(path, sync.OnceValue(func() program { return inspect(path) }))
	return ask.(func() program)()
}

// versionLine is "Redis server v=6.2.14 sha=..." or "Valkey server v=8.1.1 sha=...".
var versionLine = regexp.MustCompile(`^(\w+) server v=(\d+)\.([\w.]+)`)

func inspect(path string) program {
	out, err := exec.Command(path, "--version").Output()
	p, ok := programOf(string(out))
	if err != nil || !ok {
		return program{version: path + " of an unknown version", seven: true, tls: true}
	}
	// A server with nothing but a TLS port cannot serve it without a certificate, so it ends.
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	probe := exec.CommandContext(ctx, path, "-")
	probe.Stdin = strings.NewReader("port 0\ntls-port 1\nsave \"\"\nlogfile \"\"\n")
	out, _ = probe.CombinedOutput()
	p.tls = !lacksTLS(out)
	return p
}

// programOf reads the answer to --version.
func programOf(answer string) (p program, ok bool) {
	m := versionLine.FindStringSubmatch(answer)
	if m == nil {
		return program{}, false
	}
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(strings.Split(m[3], ".")[0])
	return program{
		version: m[1] + " " + m[2] + "." + m[3], seven: major >= 7, nine: m[1] == "Valkey" && major >= 9,
		moves: major >= 9 || m[1] == "Redis" && major == 8 && minor >= 4,
	}, true
}

// lacksTLS reports whether a server that was started with a TLS port says that it has none: it does not
// know the setting, or, from Redis 8.2 and Valkey 9 on, knows it and finds no support for it.
func lacksTLS(said []byte) bool {
	return bytes.Contains(said, []byte("'tls-port")) || bytes.Contains(said, []byte("finding TLS support"))
}
