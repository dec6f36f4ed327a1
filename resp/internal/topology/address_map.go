package topology

import (
	"errors"
	"fmt"
	"sync"
)

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
