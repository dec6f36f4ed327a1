// Package dnstest plays the domain name service of a test binary: names below .test lead where a
// test says, and change while it runs. All other names that are not in the hosts file do not exist.
package dnstest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// names is what Set has said: fully qualified, lower case.
var names struct {
	sync.Mutex
	leads   map[string][]netip.Addr
	answers map[string]int
}

// Install makes it the resolver of the process. It is for TestMain.
func Install() {
	names.leads, names.answers = make(map[string][]netip.Addr), make(map[string]int)
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: dial}
}

// Set has a name, such as "moving.test", lead to these addresses; none: the service fails for it.
func Set(name string, addrs ...string) {
	var to []netip.Addr
	for _, a := range addrs {
		to = append(to, netip.MustParseAddr(a))
	}
	names.Lock()
	defer names.Unlock()
	names.leads[name+"."] = to
}

// Answers returns how often the IPv4 addresses of a name were asked for.
func Answers(name string) int {
	names.Lock()
	defer names.Unlock()
	return names.answers[name+"."]
}

// dial connects the resolver with a server of its own. What is no packet connection carries DNS
// as TCP does: each message behind its length (RFC 1035, 4.2.2).
func dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go serve(server)
	return client, nil
}

func serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply := answer(query)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

const (
	typeA       = 1
	serverFails = 2
	noSuchName  = 3
)

// answer answers a query with one question.
func answer(query []byte) []byte {
	name, end := question(query)
	wanted := binary.BigEndian.Uint16(query[end:])
	names.Lock()
	to, known := names.leads[name]
	if wanted == typeA {
		names.answers[name]++
	}
	names.Unlock()
	code := uint16(0)
	switch {
	case !known:
		code = noSuchName
	case len(to) == 0:
		code = serverFails
	case wanted != typeA:
		to = nil
	}
	out := append([]byte(nil), query[:2]...)              // id
	out = binary.BigEndian.AppendUint16(out, 0x8180|code) // a response, recursion is available
	out = binary.BigEndian.AppendUint16(out, 1)           // questions
	out = binary.BigEndian.AppendUint16(out, uint16(len(to)))
	out = append(out, 0, 0, 0, 0)
	out = append(out, query[12:end+4]...)
	for _, addr := range to {
		out = append(out, 0xc0, 12, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // that name, internet, no time to live
		out = append(out, addr.AsSlice()...)
	}
	return out
}

// question returns the name that a query asks for, and where it ends.
func question(query []byte) (name string, end int) {
	var labels strings.Builder
	at := 12
	for query[at] != 0 {
		n := int(query[at])
		labels.Write(query[at+1 : at+1+n])
		labels.WriteByte('.')
		at += 1 + n
	}
	return strings.ToLower(labels.String()), at + 1
}
