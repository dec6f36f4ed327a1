package inspect

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

const (
	// scanCount is how many keys a server looks at for one SCAN. It does nothing else meanwhile. That many of the
	// longest names that a lock can have, 64 KiB, fit into one reply: a longer reply costs the connection (see
	// resp/wire).
	scanCount = 200
	// maxFields is how many owners a lock may have to be listed: a hash of another program may be of any size.
	maxFields = 1024
	// betweenTries is the pause before commands without an answer are sent again.
	betweenTries = 20 * time.Millisecond
	slots        = 1 << 14
)

// Found is a lock that a scan has found.
type Found struct {
	Name   string
	Mode   string
	TTL    time.Duration
	Owners []Owner
}

// Scan looks for the locks whose names match a pattern, at all primaries, one after the other. It keeps what one
// SCAN has found, and no more. A lock that is there all the time is found once, or twice if its slot moves
// meanwhile. It ends when visit returns false.
type Scan struct {
	Client   env.Client
	Patience time.Duration // for an answer
	After    func(time.Duration) (over <-chan struct{}, stop func() bool)
	Wait     func(a, b, c <-chan struct{}) int
}

// Each visits the locks. If a server fails, it goes on with the others, and returns the first such error.
func (s *Scan) Each(ctx context.Context, pattern string, visit func(Found) bool) error {
	primaries, unserved := s.primaries()
	var failed error
	for addr, route := range primaries {
		goOn, err := s.primary(ctx, addr, route, pattern, visit)
		if failed = cmp.Or(failed, err); err == nil && !goOn || ctx.Err() != nil {
			return failed
		}
	}
	if failed == nil && unserved > 0 {
		return fmt.Errorf("%d slots are not served: their locks are not among these", unserved)
	}
	return failed
}

// primaries are the servers, each with a route that leads there, and how many slots have none.
func (s *Scan) primaries() (routes map[string]uint64, unserved int) {
	routes = make(map[string]uint64)
	last := uint64(0)
	if s.Client.Clustered() {
		last = slots - 1
	}
	for route := range last + 1 {
		if addr := s.Client.AddrOf(route); addr == "" {
			unserved++
		} else if _, ok := routes[addr]; !ok {
			routes[addr] = route
		}
	}
	return routes, unserved
}

// routeTo is a route to a server.
func (s *Scan) routeTo(addr string, route uint64) (uint64, error) {
	if s.Client.AddrOf(route) == addr {
		return route, nil
	}
	routes, _ := s.primaries()
	route, ok := routes[addr]
	if !ok {
		return 0, fmt.Errorf("%s serves nothing any more: list again", addr)
	}
	return route, nil
}

// primary scans one server.
func (s *Scan) primary(ctx context.Context, addr string, route uint64, pattern string, visit func(Found) bool) (goOn bool, err error) {
	for cursor := "0"; ; {
		if route, err = s.routeTo(addr, route); err != nil {
			return false, err
		}
		page := []*command{{route: route, words: []string{"SCAN", cursor, "MATCH", pattern, "COUNT", strconv.Itoa(scanCount), "TYPE", "hash"}}}
		if err := s.send(ctx, page); err != nil {
			return false, err
		}
		if page[0].err != nil {
			return false, page[0].err
		}
		var names []string
		cursor, names = scanned(page[0].value)
		if goOn, err := s.look(ctx, names, visit); err != nil || !goOn {
			return false, err
		}
		if cursor == "0" {
			return true, nil
		}
	}
}

// scanned takes the answer to SCAN apart.
func scanned(v resp.Value) (cursor string, names []string) {
	cursor = "0"
	v.Each(func(i int, e resp.Value) bool {
		if i == 0 {
			cursor = string(e.Bytes)
			return true
		}
		e.Each(func(_ int, name resp.Value) bool {
			names = append(names, string(name.Bytes))
			return true
		})
		return false
	})
	return cursor, names
}

// look visits those of the hashes that are locks: they have an expiry, few fields, and these are owners. The values
// of other programs' hashes, such as sessions, are not read: they may be large.
func (s *Scan) look(ctx context.Context, names []string, visit func(Found) bool) (goOn bool, err error) {
	shapes := make([]*command, 0, 2*len(names))
	for _, name := range names {
		route := s.Client.Route(name)
		shapes = append(shapes, &command{route: route, words: []string{"PTTL", name}}, &command{route: route, words: []string{"HLEN", name}})
	}
	if err := s.send(ctx, shapes); err != nil {
		return false, err
	}
	var small, fields []*command
	var ttls []time.Duration
	for i, name := range names {
		ttl, size := shapes[2*i], shapes[2*i+1]
		if ttl.err != nil || size.err != nil || ttl.value.Int < 0 || size.value.Int == 0 || size.value.Int > maxFields {
			continue
		}
		ttls = append(ttls, time.Duration(ttl.value.Int)*time.Millisecond)
		small = append(small, &command{route: ttl.route, words: []string{"HKEYS", name}})
	}
	if err := s.send(ctx, small); err != nil {
		return false, err
	}
	var found []Found
	for i, keys := range small {
		if keys.err != nil || !areFields(keys.value) {
			continue
		}
		name := keys.words[1]
		found = append(found, Found{Name: name, TTL: ttls[i]})
		fields = append(fields, &command{route: keys.route, words: []string{"HGETALL", name}})
	}
	if err := s.send(ctx, fields); err != nil {
		return false, err
	}
	for i := range found {
		f := &found[i]
		var ok bool
		if f.Owners, f.Mode, ok = Owners(fields[i].value, 0); fields[i].err != nil || !ok || !areOwners(f.Owners) {
			continue
		}
		if !visit(*f) {
			return false, nil
		}
	}
	return true, nil
}

// areFields reports whether the fields of a hash are those of a lock.
func areFields(keys resp.Value) bool {
	var owners []Owner
	keys.Each(func(_ int, e resp.Value) bool {
		if field := string(e.Bytes); field != "mode" {
			owners = append(owners, Owner{ID: field})
		}
		return true
	})
	return areOwners(owners)
}

// areOwners reports whether the fields of a hash are owners: "<uuid>:<number>" and so on.
func areOwners(all []Owner) bool {
	for _, o := range all {
		if len(EngineOf(o.ID)) != len("00000000-0000-0000-0000-000000000000") {
			return false
		}
	}
	return len(all) > 0
}

// send sends commands that only read, and waits for their answers. Those without one are sent again, unless the engine
// has closed. When it fails, answers may still come.
func (s *Scan) send(ctx context.Context, all []*command) error {
	late, stop := s.After(s.Patience)
	defer stop()
	left := all
	for {
		b := &batch{done: make(chan struct{})}
		b.left.Store(int64(len(left)))
		for _, c := range left {
			c.batch = b
			s.Client.Submit(c.route, c)
		}
		if len(left) > 0 && s.Wait(b.done, late, ctx.Done()) != 0 {
			return s.late(ctx, nil)
		}
		var again []*command
		for _, c := range left {
			if _, cause := resp.Outcome(c.err); cause == resp.ErrClosed {
				return lockerr.ErrClosed
			}
			if _, answered := c.err.(*resp.ServerError); c.err != nil && !answered && !resp.Unreadable(c.err) {
				again = append(again, c)
			}
		}
		if len(again) == 0 {
			return forbidden(all)
		}
		pause, stopPause := s.After(betweenTries)
		ended := s.Wait(pause, late, ctx.Done()) != 0
		stopPause()
		if ended {
			return s.late(ctx, again[0].err)
		}
		left = again
	}
}

// forbidden is the error of a command that this user may not use at all. A key that this user may not see is no error.
func forbidden(all []*command) error {
	for _, c := range all {
		if e, ok := c.err.(*resp.ServerError); ok && resp.RefusalOf(e).Forbidden() && strings.Contains(e.Message, "to run the") {
			return e
		}
	}
	return nil
}

// late is the error of commands that were not answered in time.
func (s *Scan) late(ctx context.Context, why error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case why != nil:
		return why
	}
	return ErrSlow
}

// batch counts the answers to commands.
type batch struct {
	left atomic.Int64
	done chan struct{}
}

// command is one that only reads.
type command struct {
	route uint64
	words []string
	batch *batch
	value resp.Value
	err   error
}

// AppendCommand implements resp.Request.
func (c *command) AppendCommand(dst []byte, _ resp.ScriptForm) []byte {
	return wire.AppendCommand(dst, c.words...)
}

// Priority implements resp.PatientRequest.
func (c *command) Priority() resp.Priority { return resp.PriorityNormal }

// Wanted implements resp.PatientRequest.
func (c *command) Wanted() bool { return true }

// Complete implements resp.Request.
func (c *command) Complete(r resp.Reply) {
	c.value, c.err = r.Value.Clone(), r.Err
	if c.batch.left.Add(-1) == 0 {
		close(c.batch.done)
	}
}
