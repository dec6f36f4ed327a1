package topology

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pawl-lock/pawl/resp/wire"
)

// Limits of what servers announce.
const (
	// MaxAnnounced is how many addresses of one list are remembered.
	MaxAnnounced = 32
	// maxKnown is how many known addresses one search asks, beside the configured ones.
	maxKnown = 16
	// maxHost is the longest name that DNS has, and some.
	maxHost = 255
)

// announced is the address that a server announces, as it is dialled from here. Only
// addresses of the user's own, those of the configuration and those that AddrMap returns,
// may be sockets in the file system. It runs AddrMap.
func (c *Config) announced(host, port, asked string) (string, error) {
	addr, own, err := parseAnnounced(host, port, asked)
	if err != nil || own || c.AddrMap == nil {
		return addr, err
	}
	return c.AddrMap.ask(addr)
}

// parseAnnounced joins host and port. Without a host they mean the one at which the
// server was asked; then AddrMap has had its say.
func parseAnnounced(host, port, asked string) (addr string, own bool, err error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return "", false, fmt.Errorf("%w: a server announces the port %.20q", wire.ErrProtocol, port)
	}
	port = strconv.FormatUint(number, 10)
	if host == "" {
		if NetworkOf(asked) == "unix" {
			asked = "localhost:0"
		}
		if host, _, _ = net.SplitHostPort(asked); host != "" {
			return net.JoinHostPort(host, port), true, nil
		}
	}
	forbidden := func(r rune) bool { return r <= ' ' || r == '/' || r == '\\' || r == 0x7f }
	if host == "" || host == "?" || len(host) > maxHost || strings.ContainsFunc(host, forbidden) {
		return "", false, fmt.Errorf("%w: a server announces the host %.40q", wire.ErrProtocol, host)
	}
	return net.JoinHostPort(host, port), false, nil
}

// NetworkOf distinguishes a path from host:port.
func NetworkOf(addr string) string {
	if addr != "" && addr[0] == '/' {
		return "unix"
	}
	return "tcp"
}

// candidates lists addresses to ask, each once: hint, one of the known ones, the one that answered
// last, then the seeds and the other known ones in turn. So the known ones are asked by turns as
// long as they live; and if all are dead, as they are where all addresses change at once, that
// costs a head start or two. But what is late comes last, unless it is the hint.
func (s *probes) candidates(hint, good string, known, seeds []string) []string {
	now := s.clock.Now()
	known = s.slow.last(now, shuffled(known))
	known = known[:min(len(known), maxKnown)]
	one := known[:min(len(known), 1)]
	rest := alternately(shuffled(seeds), known[len(one):])
	return unique([]string{hint}, s.slow.last(now, unique(one, []string{good}, rest)))
}

// alternately takes one of each list in turn.
func alternately(a, b []string) (all []string) {
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			all = append(all, a[i])
		}
		if i < len(b) {
			all = append(all, b[i])
		}
	}
	return all
}

// unique is the addresses of all lists, each once, in order.
func unique(lists ...[]string) (all []string) {
	seen := map[string]bool{"": true}
	for _, list := range lists {
		for _, addr := range list {
			if !seen[addr] {
				seen[addr] = true
				all = append(all, addr)
			}
		}
	}
	return all
}

func shuffled(list []string) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// AddressMap is Config.AddrMap and what it has said. Event loops run no code of the
// user: they look up what is known, and have the explorer ask for the rest.
type AddressMap struct {
	translate func(addr string) string
	mu        struct {
		sync.Mutex
		known map[string]translation // at most maxTranslations
	}
}

type translation struct {
	to  string
	err error
}

// maxTranslations is far above the number of nodes of any cluster.
const maxTranslations = 4096

// errUntranslated: nobody has asked AddrMap yet.
var errUntranslated = errors.New("resp: the address is being translated")

// NewAddressMap returns the map of a user's function.
func NewAddressMap(translate func(string) string) *AddressMap {
	m := &AddressMap{translate: translate}
	m.mu.known = make(map[string]translation)
	return m
}

// ask runs the user's function, and remembers what it says.
func (m *AddressMap) ask(addr string) (to string, err error) {
	to, err = m.run(addr)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.known) >= maxTranslations {
		clear(m.mu.known) // servers announce ever new addresses
	}
	m.mu.known[addr] = translation{to, err}
	return to, err
}

func (m *AddressMap) run(addr string) (to string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("resp: Config.AddrMap panicked for %s: %v", addr, v)
		}
	}()
	if to = m.translate(addr); to == "" {
		return "", fmt.Errorf("resp: Config.AddrMap returns no address for %s", addr)
	}
	return to, nil
}

// lookUp says what the function has said; errUntranslated if it has not been asked.
func (m *AddressMap) lookUp(addr string) (to string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.mu.known[addr]
	if !ok {
		return "", errUntranslated
	}
	return known.to, known.err
}
