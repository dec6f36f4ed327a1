package handshake

import (
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// step is one command of the handshake. All of them go out in one write.
type step struct {
	name  string // for error texts: what the user would have to look at
	words []string
	// secret is cut out of the server's answer.
	secret string
	// optional steps may be refused.
	optional bool
	// accept, if set, judges an answer that is no error.
	accept func(wire.Value) error
	// meet, if set, judges the answer when those to all steps are in order. It may ask more.
	meet func(in *replyreader.Stream, answer wire.Value) error
}

// steps lists the commands that make a fresh connection ready for its purpose.
func (c *Config) steps(p Purpose, user, password string) []step {
	var steps []step
	switch {
	case user != "":
		steps = append(steps, step{name: "AUTH", words: []string{"AUTH", user, password}, secret: password})
	case password != "":
		steps = append(steps, step{name: "AUTH", words: []string{"AUTH", password}, secret: password})
	}
	if c.DB != 0 {
		steps = append(steps, step{name: "SELECT", words: []string{"SELECT", strconv.Itoa(c.DB)}})
	}
	// Names are for people who read CLIENT LIST; SETINFO is unknown before 7.2.
	steps = append(steps,
		step{name: "CLIENT", words: []string{"CLIENT", "SETNAME", c.ClientName}, optional: true},
		step{name: "CLIENT", words: []string{"CLIENT", "SETINFO", "LIB-NAME", "pawl"}, optional: true},
		step{name: "CLIENT", words: []string{"CLIENT", "SETINFO", "LIB-VER", libVersion()}, optional: true})
	if p != Messages && p != Probing {
		for _, s := range c.Scripts {
			steps = append(steps, step{name: "SCRIPT LOAD", words: []string{"SCRIPT", "LOAD", s}})
		}
	}
	if p != Probing && (c.Kind == topology.Sentinel || c.Kind == topology.Replicas) {
		// An address may lead to a server that has been demoted since.
		steps = append(steps, step{name: "ROLE", words: []string{"ROLE"}, accept: topology.IsPrimary})
	}
	if p != Probing && c.Identity != nil {
		// An address may lead to a server of somebody else by now.
		question := topology.IdentityQuestion(c.Kind)
		steps = append(steps, step{name: question[0], words: question, optional: true, meet: c.meet})
	}
	if p == Commands {
		steps = append(steps, step{name: "HELLO", words: []string{"HELLO", "2"}, optional: true, accept: c.acquainted})
	}
	if p == Probing && c.Kind == topology.Replicas {
		return steps // a server that loads its data says what its ROLE is, and refuses PING
	}
	// The others may all be optional; this one tells whether the server serves us:
	// NOAUTH, LOADING, MASTERDOWN and BUSY show here at the latest.
	return append(steps, step{name: "PING", words: []string{"PING"}})
}

// meet checks a server by its answer to the question who it is.
func (c *Config) meet(in *replyreader.Stream, answer wire.Value) error {
	return c.Identity.Meet(c.Addr, answer, func(question ...string) (wire.Value, error) {
		if _, err := in.Conn.Write(wire.AppendCommand(nil, question...)); err != nil {
			return wire.Value{}, err
		}
		v, err := in.Next()
		if err != nil {
			return v, fmt.Errorf("no answer to %s: %w", question[0], err)
		}
		return v, nil
	})
}

// libVersion is the version of this module in the running binary, as a word
// that CLIENT SETINFO accepts.
var libVersion = sync.OnceValue(func() string {
	const path = "github.com/pawl-lock/pawl"
	if info, ok := debug.ReadBuildInfo(); ok {
		mods := append([]*debug.Module{&info.Main}, info.Deps...)
		for _, m := range mods {
			if m.Path == path && strings.HasPrefix(m.Version, "v") {
				return m.Version[1:]
			}
		}
	}
	return "devel"
})
