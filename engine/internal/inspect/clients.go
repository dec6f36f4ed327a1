package inspect

import (
	"strings"
)

// Connection is one of those that the server has of an engine.
type Connection struct{ Addr string }

// Connections reads the answer to CLIENT LIST: the first connection of each engine that is wanted. The name of an
// engine's connections ends with its id, behind a colon. A name is whatever its client says.
func Connections(list string, wanted map[string]bool) map[string]Connection {
	found := make(map[string]Connection)
	for line := range strings.Lines(list) {
		var name, addr string
		for word := range strings.FieldsSeq(line) {
			if v, ok := strings.CutPrefix(word, "name="); ok {
				name = v
			} else if v, ok := strings.CutPrefix(word, "addr="); ok {
				addr = v
			}
		}
		id := name[strings.LastIndexByte(name, ':')+1:]
		if _, has := found[id]; wanted[id] && !has {
			found[id] = Connection{Addr: short(addr, maxText)}
		}
	}
	return found
}

// ClientNameFits reports whether the server accepts a name of a connection. One without a name is not found, and its
// engine looks dead.
func ClientNameFits(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' })
}

// ClientName is the name of an engine's connections.
func ClientName(name, engine string) string { return name + ":" + engine }
