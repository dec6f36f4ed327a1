package sim

import (
	"fmt"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
)

// server is a server: what it stores, and what befalls it.
type server struct {
	*model.Keyspace
	name    string
	replica *replica // nil: it has none

	hangs        clock.Instant // it executes nothing before
	down         clock.Instant // nobody can connect before
	refuses      string        // what it says to each command, until
	refusesUntil clock.Instant
}

// serve makes n servers.
func (s *Sim) serve(n int) {
	s.servers = nil
	for i := range n {
		name := "server"
		if n > 1 {
			name = fmt.Sprintf("server %d", i+1)
		}
		s.servers = append(s.servers, s.newServer(name))
	}
	s.server = s.servers[0]
}

func (s *Sim) newServer(name string) *server {
	v := &server{Keyspace: model.New(s.time), name: name}
	v.Published = func(channel, verb, message string) int {
		s.checkQuiet(channel)
		return s.say(v, channel, verb, message)
	}
	v.Purged = s.purged
	return v
}

// answers reports whether a server that refuses executes a command: one of a count that only looks.
func (v *server) answers(command []byte) bool {
	if v.refuses != noMemory && v.refuses != noReplicas {
		return false
	}
	words := model.Words(command)
	return model.BySHA[words[1]] == script.Counter && words[2] == "1"
}
