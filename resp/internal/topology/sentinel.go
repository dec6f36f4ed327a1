package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/wire"
)

// sentinelFinder asks sentinels who the primary is, and one of them announces
// when that changes.
type sentinelFinder struct {
	cfg     *Config
	probes  *probes
	pending string // the hint of a search that failed; the searching goroutine's
	mu      struct {
		sync.Mutex
		watched *watched // whom the watching goroutine listens to, if anybody
		warned  bool     // that a sentinel refuses to announce failovers
		good    string   // the sentinel that answered last
		known   []string // what it said of the others
		present string   // the primary of the latest layout
		epoch   int64    // of that layout
	}
}

func newSentinelFinder(c *Config, s *probes) *sentinelFinder {
	t := &sentinelFinder{cfg: c, probes: s}
	t.mu.epoch = noEpoch
	return t
}

// candidates lists sentinels: hint, then one of those that the one that answered last knows, before
// that one itself. It may be cut off from the others, and never learn of a failover
// that they agree on. Where epochs are not told the latest word cannot be known, so the
// client stays with one sentinel as long as that answers.
func (t *sentinelFinder) candidates(hint string) []string {
	t.mu.Lock()
	good, known, epoch := t.mu.good, t.mu.known, t.mu.epoch
	t.mu.Unlock()
	if hint == "" && epoch == noEpoch {
		hint = good
	}
	return t.probes.candidates(hint, good, known, t.cfg.Addrs)
}

// find believes a sentinel only if the server that it names agrees: right after a
// failover some sentinels do not know of it yet. And that server, or the sentinel, has to be one of
// this deployment. hint is the sentinel that has announced one;
// so the others, and the old primary, are not to be faster than the way to the new one. It
// stays the hint until a search succeeds.
func (t *sentinelFinder) find(ctx context.Context, hint string, count bool) (l *Layout, err error) {
	t.cfg.Identity.began()
	defer t.leaveForeign()
	defer t.cfg.Identity.ended()
	s := sentinelSearch{sentinelFinder: t, count: count, verdicts: make(map[string]*verdict)}
	hint = cmp.Or(hint, t.pending)
	if hint != "" {
		l, err = askFirst(ctx, t.probes, []string{hint}, s.ask)
	}
	if l == nil {
		l, err = askFirst(ctx, t.probes, t.candidates(hint), s.ask)
	}
	if err != nil {
		t.pending = hint
		return nil, err
	}
	t.pending = ""
	t.cfg.Identity.Believe(l.ids...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if primary := l.Shards[0].Primary; primary != t.mu.present || l.epoch != noEpoch {
		t.mu.present, t.mu.epoch = primary, l.epoch
	}
	return l, nil
}

// sentinelSearch is one search. Each server that sentinels name is asked once, however
// many name it.
type sentinelSearch struct {
	*sentinelFinder
	count    bool // the replicas, too
	asking   sync.Mutex
	verdicts map[string]*verdict // by address
}

// verdict is whether a server is the primary: err is nil if so, and set before given is
// closed.
type verdict struct {
	given chan struct{}
	err   error
	ids   []string // of its data; nil if it refuses to tell
	epoch int64    // the latest of which a sentinel has named it
}

func (s *sentinelSearch) ask(ctx context.Context, sentinel string) (*Layout, error) {
	primary, err := s.named(ctx, sentinel)
	if err != nil {
		return nil, err
	}
	l := &Layout{Shards: []Shard{{Last: slot.Count - 1, Primary: primary}}}
	if l.epoch, err = s.epoch(ctx, sentinel); err != nil {
		return nil, err
	}
	if l.ids, err = s.verdict(ctx, primary, l.epoch); err != nil {
		return nil, &NotYet{fmt.Errorf("resp: sentinel %s names %s: %w", sentinel, primary, err)}
	}
	if l.ids != nil && !s.cfg.Identity.believes(sentinel, l.ids) {
		return nil, &NotYet{fmt.Errorf("resp: sentinel %s names %s: %w", sentinel, primary, ErrForeign)}
	}
	if behind, err := s.behind(ctx, sentinel, l); err != nil {
		return nil, err
	} else if behind {
		return nil, &NotYet{fmt.Errorf("resp: sentinel %s names %s, which has been replaced", sentinel, primary)}
	}
	if s.count { // with those that are down, until the sentinel is reset
		list, err := s.probes.ask(ctx, s.cfg.Sentinels, sentinel, "SENTINEL", "REPLICAS", s.cfg.Master)
		if err != nil {
			l.Groups = unknownGroups(refusedBySentinel(err))
		} else {
			l.Groups = s.groups(primary, list)
		}
	}
	others, err := s.probes.ask(ctx, s.cfg.Sentinels, sentinel, "SENTINEL", "SENTINELS", s.cfg.Master)
	known := s.others(others, sentinel)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.good = sentinel
	if err == nil { // it is a matter of luck, not of need
		s.mu.known = known
	}
	return l, nil
}

// named returns the primary that a sentinel names.
func (s *sentinelSearch) named(ctx context.Context, sentinel string) (string, error) {
	v, err := s.probes.ask(ctx, s.cfg.Sentinels, sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.cfg.Master)
	if err != nil {
		return "", refusedBySentinel(err)
	}
	e := replyreader.Elements(v)
	if len(e) != 2 {
		return "", fmt.Errorf("resp: sentinel %s: %w", sentinel, &wire.ServerError{Code: "ERR", Message: "ERR No such master with that name: " + s.cfg.Master})
	}
	primary, err := s.cfg.announced(string(e[0].Bytes), string(e[1].Bytes), sentinel)
	if err != nil {
		return "", fmt.Errorf("resp: sentinel %s: %w", sentinel, err)
	}
	return primary, nil
}

// noEpoch is that of a sentinel that does not tell, and less than any.
const noEpoch = -1

// epoch returns how often, as far as a sentinel knows, the primary has been chosen.
func (s *sentinelSearch) epoch(ctx context.Context, sentinel string) (int64, error) {
	v, err := s.probes.ask(ctx, s.cfg.Sentinels, sentinel, "SENTINEL", "MASTER", s.cfg.Master)
	if errors.As(err, new(*wire.ServerError)) {
		return noEpoch, nil // the user needs a right for it
	}
	if err != nil {
		return noEpoch, err
	}
	n, err := strconv.ParseInt(replyreader.Field(v, "config-epoch"), 10, 64)
	if err != nil {
		return noEpoch, nil
	}
	return n, nil
}

// behind reports whether the sentinel has slept through the failover to the present
// primary, which goes on. The server that it names may not know either:
//
//	sentinel A            sentinel B          the client
//	names R, epoch 2      names P, epoch 1    follows A to R
//	falls silent                              asks B
//	                                          back to P, where others have its locks
//
// A primary that is gone, or is none any more, or whose address is another deployment's by now, is
// no reason to doubt: sentinels that were
// set up anew count their epochs from the beginning. One that has not answered yet is not
// gone before DialTimeout is over: a lost packet costs a new connection a second. One that
// is full or busy goes on: after a failover all clients connect to it.
//
// It may also have slept through the one that is being followed, if the new primary, which
// another sentinel names, has not answered yet: then the client stays where it is, too, but
// looks again soon.
//
// Name and epoch are two answers, and the sentinel may learn of the failover between them:
// then it has named P, of epoch 2. So before the client moves it is asked for the name
// once more.
func (s *sentinelSearch) behind(ctx context.Context, sentinel string, l *Layout) (bool, error) {
	s.mu.Lock()
	present, epoch := s.mu.present, s.mu.epoch
	s.mu.Unlock()
	primary := l.Shards[0].Primary
	switch {
	case present == "":
		return false, nil
	case s.overtaken(l.epoch):
		return true, nil
	case primary == present:
		return false, nil
	case l.epoch < epoch:
		if _, err := s.verdict(ctx, present, noEpoch); err == nil && !s.cfg.Identity.foreign(present) || s.open(present, err) {
			return true, nil
		}
	}
	again, err := s.named(ctx, sentinel)
	return again != primary, err
}

// overtaken reports whether a sentinel names a server of a later epoch that may turn out to
// be the primary. If that server has not said so within DialTimeout, be it silent, full or
// busy, the others are believed: they may have been set up anew, and that sentinel not.
func (s *sentinelSearch) overtaken(epoch int64) bool {
	s.asking.Lock()
	defer s.asking.Unlock()
	for addr, v := range s.verdicts {
		if v.epoch <= epoch {
			continue
		}
		select {
		case <-v.given:
			if waiting, _ := s.probes.outstanding(addr); waiting < s.cfg.DialTimeout && s.open(addr, v.err) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// open reports whether a server that has answered with err, or not at all, may yet say that
// it is the primary.
func (s *sentinelSearch) open(addr string, err error) bool {
	return postponed(err) || errors.Is(err, ErrSilent) && s.probes.silence(addr) < s.cfg.DialTimeout
}

// postponed reports whether err is that of a server that is there, and cannot say now
// whether it is a primary.
func postponed(err error) bool {
	var e *wire.ServerError
	return errors.As(err, &e) && request.RefusalOf(e).Unready()
}

// groups reads the answer to SENTINEL REPLICAS. It counts as many as are listed: if that
// was after the next failover, the primary is one of them, and the next one is not.
func (t *sentinelFinder) groups(primary string, list wire.Value) *Groups {
	g := &Group{Replicas: list.Len(), peers: []peer{{names: []string{primary}, dialled: []string{primary}}}}
	for _, r := range replyreader.Elements(list) {
		host, port := replyreader.Field(r, "ip"), replyreader.Field(r, "port")
		p := peer{names: []string{net.JoinHostPort(host, port)}}
		if addr, err := t.cfg.announced(host, port, ""); err == nil {
			p.dialled = []string{addr}
		}
		if g.peers = append(g.peers, p); len(g.peers) > maxNodes {
			break // they are counted, and that is enough
		}
	}
	gs := new(Groups)
	gs.add(g)
	return gs
}

// verdict asks a server whether it is a primary, and of whose data, or waits for the answer if it
// is being asked already. A sentinel has named it, of an epoch.
func (s *sentinelSearch) verdict(ctx context.Context, addr string, epoch int64) ([]string, error) {
	s.asking.Lock()
	v, asked := s.verdicts[addr]
	if !asked {
		v = &verdict{given: make(chan struct{}), epoch: noEpoch}
		s.verdicts[addr] = v
	}
	v.epoch = max(v.epoch, epoch)
	s.asking.Unlock()
	if asked {
		<-v.given // at the latest when ctx ends: it is the same for all
		return v.ids, v.err
	}
	v.ids, v.err = s.primary(ctx, addr)
	close(v.given)
	return v.ids, v.err
}

// primary returns the ids of a server's data, if it is a primary.
func (s *sentinelSearch) primary(ctx context.Context, addr string) (ids []string, err error) {
	role, err := s.probes.ask(ctx, s.cfg.Servers, addr, "ROLE")
	if err == nil {
		err = IsPrimary(role)
	}
	if err != nil {
		return nil, err
	}
	info, err := s.probes.ask(ctx, s.cfg.Servers, addr, IdentityQuestion(Sentinel)...)
	var refused *wire.ServerError
	if errors.As(err, &refused) && !request.RefusalOf(refused).NotNow() {
		return nil, nil // the user needs a right for it
	}
	return append([]string{}, ReadIdentity(Sentinel, info)...), err
}

// ErrSentinelAuth is exported by resp, which has its documentation.
var ErrSentinelAuth = errors.New("resp: sentinels have credentials of their own (SentinelPassword, sentinel_password in a URL)")

// refusedBySentinel says whose credentials are meant, if that is the trouble.
func refusedBySentinel(err error) error {
	var e *wire.ServerError
	if errors.As(err, &e) && request.RefusalOf(e) == (request.Refusal{Of: request.OfConnection, Executed: request.No, Lasts: request.Unauthorized}) {
		return fmt.Errorf("%w: %w", ErrSentinelAuth, err)
	}
	return err
}

// others reads the answer to SENTINEL SENTINELS: for each a flat list of fields.
func (t *sentinelFinder) others(v wire.Value, asked string) []string {
	var addrs []string
	for _, s := range replyreader.Elements(v) {
		host, port := replyreader.Field(s, "ip"), replyreader.Field(s, "port")
		if addr, err := t.cfg.announced(host, port, asked); err == nil {
			addrs = append(addrs, addr)
		}
		if len(addrs) == MaxAnnounced {
			break
		}
	}
	return addrs
}
