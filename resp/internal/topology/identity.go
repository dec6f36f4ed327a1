package topology

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Identity is whom the servers of a deployment are believed to be. Addresses are used again: a
// server of somebody else may answer at one that was learnt. So each layout that is found, and
// each connection that is made, is asked for ids (see IdentityQuestion), and those of the latest
// believed layout decide:
//
//   - A layout is believed if it shares an id with the one before, or if a configured address
//     has it: of a server of the deployment, or of the sentinel.
//   - A connection is used if its server has one of these ids. In a cluster it is, too, if the
//     layout that its server has shares one: a node that was added, or that replaces another
//     behind a name that stays.
//   - A server that refuses to say who it is is not checked, be it for lack of a right or because
//     it is a proxy.
//
// What a member that is not the one named does is harmless: it answers MOVED or READONLY. A
// configured address that is used again by others is not noticed.
//
// Invariants:
//
//  1. mu.ids are those of the layout that was believed last. While there are none nothing is
//     known, and everything is believed.
//  2. A server that shares none is in mu.doubts until a search is over that had the chance to
//     find it in a new layout, as it does if the whole deployment was set up anew. If it is still
//     in doubt then, it is foreign, and reported once. It is no more once it shares an id, or has
//     not been met for an hour.
//  3. No user code (the logger, look) runs under mu.
//
// A nil Identity is that of a single server, whose address is configured: Meet checks nothing.
type Identity struct {
	kind       Kind
	configured []string
	clock      clock.Clock
	logger     *slog.Logger
	refresh    func(hint string) // asks for a search at once; set before the first connection

	mu struct {
		sync.Mutex
		ids       map[string]bool
		doubts    map[string]*doubt // by address; at most maxDoubts
		search    int               // the number of the search that is under way, or was the latest
		unchecked bool              // it has been logged that a server refuses to say who it is
	}
}

// doubt is a server, or a sentinel with the primary that it names, that shares no id.
type doubt struct {
	ids     []string
	search  int // the one that settles it
	met     clock.Instant
	foreign bool
}

const (
	maxDoubts = 64
	// doubtFor is for how long a server is remembered that is not met any more.
	doubtFor = time.Hour
)

// ErrForeign means that a server is not one of the deployment, as far as can be known.
var ErrForeign = errors.New("it belongs to another deployment: it shares no id with the servers in use; check who has that address now")

// NewIdentity returns that of a deployment of which nothing is known yet but its configured
// addresses.
func NewIdentity(k Kind, configured []string, c clock.Clock, l *slog.Logger) *Identity {
	i := &Identity{kind: k, configured: configured, clock: c, logger: l, refresh: func(string) {}}
	i.mu.doubts = make(map[string]*doubt)
	return i
}

// Shares reports whether one of the ids is known, or nothing is.
func (i *Identity) Shares(ids ...string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.sharesLocked(ids)
}

// knows reports whether one of the ids is known.
func (i *Identity) knows(ids []string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.mu.ids) > 0 && i.sharesLocked(ids)
}

func (i *Identity) sharesLocked(ids []string) bool {
	return len(i.mu.ids) == 0 || slices.ContainsFunc(ids, func(id string) bool { return i.mu.ids[id] })
}

// Believe replaces the ids by those of a layout that is believed.
func (i *Identity) Believe(ids ...string) {
	known := make(map[string]bool)
	for _, id := range ids[:min(len(ids), maxNodes)] {
		known[id] = true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.ids = known
}

// believes reports whether a layout with these ids may be believed, by the word of the server or
// sentinel at from.
func (i *Identity) believes(from string, ids []string) bool {
	if i.belongs(from, ids) || slices.Contains(i.configured, from) {
		return true
	}
	i.doubt(from, ids, false)
	return false
}

// belongs reports whether the server at an address, which has these ids, shares one.
func (i *Identity) belongs(addr string, ids []string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.sharesLocked(ids) {
		return false
	}
	delete(i.mu.doubts, addr)
	return true
}

// Meet checks the server of a fresh connection, which has answered IdentityQuestion. It may ask
// it another question. It returns nil, an ErrForeign, or what keeps the server from answering.
func (i *Identity) Meet(addr string, answer wire.Value, ask func(question ...string) (wire.Value, error)) error {
	if i == nil {
		return nil
	}
	if i.declines(addr, answer) {
		return nil
	}
	ids := ReadIdentity(i.kind, answer)
	if len(ids) == 0 {
		ids = []string{addr} // a server of another make is known by its address alone: see replicationInfo
	}
	if i.belongs(addr, ids) {
		return nil
	}
	if i.kind == Cluster {
		slots, err := ask("CLUSTER", "SLOTS")
		if err != nil {
			return err
		}
		if slots.Kind == wire.KindError {
			if e := wire.NewServerError(slots.Bytes); request.RefusalOf(e).NotNow() {
				return e
			}
		}
		if i.declines(addr, slots) {
			return nil
		}
		if i.belongs(addr, nodeIDs(slots)) {
			i.refresh(addr)
			return nil
		}
	}
	if i.doubt(addr, ids, true) {
		hint := addr
		if i.kind != Cluster {
			hint = "" // it is no sentinel
		}
		i.refresh(hint)
	}
	return &NotYet{fmt.Errorf("%w (its ids: %.90q)", ErrForeign, ids)}
}

// doubt notes a server that shares no id, and reports whether it is a new one. One that was met
// outside a search is a matter of the next search.
func (i *Identity) doubt(addr string, ids []string, outside bool) (fresh bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	d := i.mu.doubts[addr]
	if d == nil {
		if len(i.mu.doubts) >= maxDoubts {
			return false
		}
		d = &doubt{search: i.mu.search}
		if outside {
			d.search++
		}
		i.mu.doubts[addr] = d
		fresh = true
	}
	d.ids, d.met = ids, i.clock.Now()
	return fresh
}

// began notes that a search has begun.
func (i *Identity) began() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.search++
}

// ended settles doubts at the end of a search.
func (i *Identity) ended() {
	var report []string
	i.mu.Lock()
	now := i.clock.Now()
	for addr, d := range i.mu.doubts {
		switch {
		case i.sharesLocked(d.ids) || now.Sub(d.met) > doubtFor:
			delete(i.mu.doubts, addr)
		case !d.foreign && d.search <= i.mu.search:
			d.foreign = true
			report = append(report, addr)
		}
	}
	i.mu.Unlock()
	for _, addr := range report {
		i.logger.Warn("resp: a server is not used", "addr", addr, "err", ErrForeign)
	}
}

// foreign reports whether the server at an address belongs to another deployment, as far as is
// known.
func (i *Identity) foreign(addr string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	d := i.mu.doubts[addr]
	return d != nil && d.foreign
}

// declines reports whether a server refuses to say who it is, and logs that once. That it is no
// node of a cluster at all is no refusal, but an answer.
func (i *Identity) declines(addr string, answer wire.Value) bool {
	if answer.Kind != wire.KindError {
		return false
	}
	e := wire.NewServerError(answer.Bytes)
	if request.RefusalOf(e).Of == request.OfDeployment {
		return false
	}
	i.mu.Lock()
	first := !i.mu.unchecked
	i.mu.unchecked = true
	i.mu.Unlock()
	if first {
		i.logger.Info("resp: servers are not checked for being those of this deployment, since one refuses to say who it is",
			"addr", addr, "question", strings.Join(IdentityQuestion(i.kind), " "), "err", e)
	}
	return true
}

// IdentityQuestion is the command that asks a server of a deployment of kind k who it is. A node
// of a cluster has an id of its own, which it keeps when it restarts. Elsewhere the data has one,
// the replication ID, which a primary shares with its replicas: see replicationInfo. Run ids change at
// each restart, and decide nothing.
func IdentityQuestion(k Kind) []string {
	if k == Cluster {
		return []string{"CLUSTER", "MYID"}
	}
	return []string{"INFO", "replication"}
}

// ReadIdentity returns the ids in the answer to IdentityQuestion; none if the server does not
// say who it is: it refuses the question, or is of another make.
func ReadIdentity(k Kind, v wire.Value) []string {
	switch {
	case v.Kind != wire.KindBulk || len(v.Bytes) == 0:
		return nil
	case k == Cluster:
		return []string{string(v.Bytes)}
	}
	return replicationIDs(infoFields(string(v.Bytes)))
}

// infoFields reads the answer to INFO.
func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// replicationIDs are those of a server's data: its own, and the one that it continues, if any.
func replicationIDs(fields map[string]string) (ids []string) {
	for _, name := range []string{"master_replid", "master_replid2"} {
		if id := fields[name]; strings.Trim(id, "0") != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// nodeIDs are those of the primaries and replicas in an answer to CLUSTER SLOTS.
func nodeIDs(slots wire.Value) (ids []string) {
	for _, entry := range replyreader.Elements(slots) {
		e := replyreader.Elements(entry)
		for _, node := range e[min(2, len(e)):] {
			if fields := replyreader.Elements(node); len(fields) > 2 && len(fields[2].Bytes) > 0 {
				ids = append(ids, string(fields[2].Bytes))
			}
		}
	}
	return unique(ids)
}
