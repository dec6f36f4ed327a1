package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// LockInfo is what is known of a name. The fields up to QueueHidden come from the server, the rest
// from the engines. The answer of an engine is a claim: any client that may publish to the channel
// can lie. So show it as somebody else's text, and do not act on it.
type LockInfo struct {
	// Name is the key on the server.
	Name string
	// Kind is "mutex", "fenced", "fair", "read-write", "permits", "count", or "" if there is
	// nothing. It says only what the keys show: a fair lock for which nobody waits is "mutex", a
	// semaphore without taken permits, or a latch, is "count".
	Kind string
	// Locked, Mode and TTL are those of State.
	Locked bool
	Mode   string
	TTL    time.Duration
	// Holders are the owners of a lock, or the permits that are taken.
	Holders []HolderInfo
	// Queue is the number of waiters in the queue of a fair lock, dead ones included; Token the last
	// fencing token; Available the free permits of a semaphore, Count the number of a count.
	Queue     int
	Token     int64
	Available int
	Count     int
	// Hidden is why this user may not see more, QueueHidden why not the queue.
	Hidden, QueueHidden error

	// Waiters are calls of Lock that wait, the longest first: at most 100 of each engine. Waiting
	// counts the others, too.
	Waiters []Use
	Waiting int
	// Unconfirmed are holds that engines claim to have, and that the server does not know.
	Unconfirmed []Use
	// Engines are the engines that answered, and those behind a holder.
	Engines []*EngineInfo
	// Silent is how many engines listen and did not answer in time. NotAsked is why none could be
	// asked, nil if they were.
	Silent   int
	NotAsked error
}

// String returns the name, and how many hold it and wait for it.
func (i *LockInfo) String() string {
	return fmt.Sprintf("LockInfo(%s %q, held by %d, waiting %d)", i.Kind, lockerr.Shorten(i.Name), len(i.Holders), i.Waiting)
}

// HolderInfo is an owner of a lock, or a permit.
type HolderInfo struct {
	Holder
	TTL time.Duration // of a permit: the holders of a lock share one
	// Engine is the engine of that ID; nil if the ID does not say.
	Engine *EngineInfo
	// Uses are the holds of this owner, as its engine describes them. The plain readers of a process are one
	// owner, with one Use each.
	Uses []Use
}

// Use is a hold, or a wait for one, as its engine describes it.
type Use struct {
	Engine *EngineInfo
	// Name is the lock that is waited for, in a Cycle; Under are the locks that the context of a
	// waiter carried.
	Name  string
	Under []string
	// Kind is "mutex", "spin", "fenced", "fair", "read", "write", "permit", "semaphore" or "latch".
	Kind  string
	Since time.Time
	// Renewals is how often the grant was renewed, 65,535 at most; Depth is 1, and 1 more for each
	// re-entry.
	Renewals, Depth int
	// Site is where Lock was called, if Config.CallSites is set there.
	Site string
}

// Inspect finds the holders and waiters of a lock, and since when they hold it or wait. The name may be that of any
// synchronizer. It asks the server, and all engines that have used a lock for a second or longer;
// it waits up to 200 ms for their answers, longer only if the server is far away. It changes nothing.
func (e *Engine) Inspect(ctx context.Context, name string) (*LockInfo, error) {
	m := e.Mutex(name)
	if err := m.check(ctx); err != nil {
		return nil, m.about(err)
	}
	heard := e.ask(ctx, inspect.AboutName, m.key.Name)
	info, err := m.keys(ctx)
	if err != nil {
		return nil, err
	}
	heard.tell(info)
	for _, a := range heard.All {
		info.Engines = append(info.Engines, heard.of[a])
	}
	slices.SortStableFunc(info.Engines, func(a, b *EngineInfo) int { return cmp.Compare(a.ID, b.ID) })
	if !e.cfg.NoInspect {
		heard.reach(ctx, m, info)
	}
	return info, nil
}

// keys is what the server says of a name.
func (m Mutex) keys(ctx context.Context) (*LockInfo, error) {
	info := &LockInfo{Name: m.key.Name}
	st, why := m.State(ctx)
	info.Locked, info.Mode, info.TTL = st.Locked, st.Mode, st.TTL
	for _, h := range st.Holders {
		info.Holders = append(info.Holders, HolderInfo{Holder: h})
	}
	var k inspect.Keys
	var err error
	switch {
	case why == nil:
		k, err = inspect.OfLock(m.key.Name, st.Mode, st.Locked, m.asks(ctx))
	case slices.Contains(lockerr.Parts(why), ErrWrongType):
		var ok bool
		var refused error
		k, ok, refused, err = inspect.OfCount(m.key.Name, m.asks(ctx))
		switch {
		case refused != nil && forbidden(refused):
			return nil, m.about(lockerr.Wrap(errOtherThanLock, refused))
		case err == nil && !ok:
			return nil, why
		}
	default:
		return nil, why
	}
	if err != nil {
		return nil, m.about(err)
	}
	info.Kind, info.Queue, info.Token, info.Available, info.Count = k.Kind, k.Queue, k.Token, k.Available, k.Count
	info.Hidden, info.QueueHidden = k.Hidden, k.QueueHidden
	for _, p := range k.Taken {
		info.Holders = append(info.Holders, HolderInfo{Holder: Holder{ID: p.ID, Count: 1}, TTL: p.TTL})
	}
	return info, nil
}

var errOtherThanLock = errors.New("it is no lock, and this user may not see what else it is (see the ACL rules in docs/operations.md)")

// List visits the locks whose names match a pattern (* any text, ? one byte, [a-z], \\ takes the next byte as
// it is), on all primaries, in no order. Each has what Inspect returns, with these exceptions. Engines are
// asked once, before the first lock: the 100 longest holds of each engine have Uses, and Waiting counts the
// waits for these names. Waiters is empty; Engines are the engines of these waits. The kind is "mutex" or
// "read-write", unless an engine says more. Locks that nobody holds, semaphores and latches are not listed, nor
// is a hash with more than 1024 owners.
//
// Memory is bounded, however many locks there are. A lock that comes or goes meanwhile may be missed, and one whose
// slot moves may come twice. If the server cannot be asked any more, the last pair has the error.
func (e *Engine) List(ctx context.Context, pattern string) iter.Seq2[*LockInfo, error] {
	return func(yield func(*LockInfo, error) bool) {
		if err := (Mutex{home: e}).check(ctx); err != nil {
			yield(nil, err)
			return
		}
		heard, more := e.ask(ctx, inspect.AboutPattern, pattern), true
		err := e.scan().Each(ctx, pattern, func(f inspect.Found) bool {
			more = yield(heard.found(f), nil)
			return more
		})
		if err != nil && more {
			yield(nil, unasked(err))
		}
	}
}

func (e *Engine) scan() *inspect.Scan {
	return &inspect.Scan{Client: e.table.Client, Patience: e.cfg.CommandTimeout, After: e.world.After, Wait: e.world.Wait}
}

// found is what is known of a lock that a scan has found.
func (h *heard) found(f inspect.Found) *LockInfo {
	info := &LockInfo{Name: f.Name, Kind: inspect.Mutex, Locked: true, Mode: cmp.Or(f.Mode, "exclusive"), TTL: f.TTL}
	if f.Mode != "" {
		info.Kind = inspect.RW
	}
	for _, o := range f.Owners {
		info.Holders = append(info.Holders, HolderInfo{Holder: Holder{ID: o.ID, Count: o.Count}})
	}
	h.tell(info)
	for _, o := range info.Holders {
		for _, u := range o.Uses {
			if u.Kind == inspect.Fair || u.Kind == inspect.Fenced {
				info.Kind = u.Kind
			}
		}
	}
	info.Unconfirmed = nil
	for _, c := range h.names[f.Name] {
		if c.Waiting > 0 && !slices.Contains(info.Engines, c.engine) {
			info.Engines = append(info.Engines, c.engine)
		}
	}
	return info
}

// heard is what engines have answered.
type heard struct {
	inspect.Answers
	at      time.Time
	of      map[*inspect.Answer]*EngineInfo
	engines map[string]*EngineInfo // the first that answered in that name
	names   map[string][]claim
	permits map[string]*EngineInfo // by the first half of the ids of their permits
}

// claim is what one engine says of one name.
type claim struct {
	engine *EngineInfo
	inspect.Name
}

// ask asks all engines, this one included.
func (e *Engine) ask(ctx context.Context, about, text string) *heard {
	h := &heard{at: e.clock.Wall(), of: make(map[*inspect.Answer]*EngineInfo), engines: make(map[string]*EngineInfo), names: make(map[string][]claim), permits: make(map[string]*EngineInfo)}
	q := &inspect.Question{About: about, Text: []byte(text), DB: e.cfg.DB}
	// It asks itself without a message: nobody can claim to be it, and no flood of questions keeps its answer away.
	own := e.answer(q, func() bool { return ctx.Err() != nil })
	h.Err = errNoInspect
	if !e.cfg.NoInspect {
		w := inspect.World{
			Client: e.table.Client, Clock: e.clock, Verb: e.table.Verb(), DB: e.cfg.DB,
			RandRead: e.world.RandRead, After: e.world.After, Wait: e.world.Wait,
		}
		h.Answers = w.Ask(ctx, about, text)
	}
	h.All = append(slices.DeleteFunc(h.All, func(a *inspect.Answer) bool { return a.Engine == e.table.ID }), own)
	for _, a := range h.All {
		is := &EngineInfo{ID: a.Engine, Answered: true, Host: a.Host, PID: a.PID, Service: a.Service, Labels: a.Labels}
		h.of[a] = is
		if first := h.engines[a.Engine]; first != nil {
			first.Contested, is.Contested = true, true
		} else {
			h.engines[a.Engine], h.permits[script.PermitPrefix(a.Engine)] = is, is
		}
		for _, n := range a.Names {
			name := string(n.Name)
			if about == inspect.AboutName {
				name = text
			}
			h.names[name] = append(h.names[name], claim{is, n})
		}
	}
	return h
}

var errNoInspect = errors.New("engine: Config.NoInspect is set")

// tell adds to what the server says of a name what engines say.
func (h *heard) tell(info *LockInfo) {
	info.Silent, info.NotAsked = h.Silent, h.Err
	for i := range info.Holders {
		o := &info.Holders[i]
		if o.Engine = h.engines[inspect.EngineOf(o.ID)]; info.Kind == inspect.Permits {
			o.Engine = h.permits[script.PermitPrefix(o.ID)]
		}
	}
	for _, c := range h.names[info.Name] {
		info.Waiting += c.Waiting
		for i := range c.Uses {
			u := h.use(c.engine, &c.Uses[i])
			if !c.Uses[i].Held {
				info.Waiters = append(info.Waiters, u)
			} else if !info.confirm(c.engine, &c.Uses[i], u) {
				info.Unconfirmed = append(info.Unconfirmed, u)
			}
		}
	}
	slices.SortStableFunc(info.Waiters, func(a, b Use) int { return a.Since.Compare(b.Since) })
}

// confirm finds the owner of a hold among the holders. Only owners of an engine can be claimed in its name.
func (info *LockInfo) confirm(of *EngineInfo, u *inspect.Use, is Use) bool {
	found := false
	for i := range info.Holders {
		o := &info.Holders[i]
		if o.Engine != nil && o.Engine.ID == of.ID && (o.ID == u.Owner || u.Size > 0 && script.SamePermits(o.ID, u.Owner, u.Size)) {
			o.Uses = append(o.Uses, is)
			found = true
		}
	}
	return found
}

// use is a claim, for people.
func (h *heard) use(of *EngineInfo, u *inspect.Use) Use {
	is := Use{Engine: of, Kind: u.Kind, Since: h.at.Add(-u.For()), Renewals: u.Renewals, Depth: u.Depth, Site: u.Site}
	for _, c := range u.Under {
		is.Under = append(is.Under, string(c.Name))
	}
	return is
}

// reach finds out about the engines of holders that have not answered: whether the server has a
// connection of them.
func (h *heard) reach(ctx context.Context, m Mutex, info *LockInfo) {
	wanted := make(map[string]bool)
	for i := range info.Holders {
		o := &info.Holders[i]
		id := inspect.EngineOf(o.ID)
		if o.Engine != nil || id == "" {
			continue
		}
		if !wanted[id] {
			wanted[id] = true
			h.engines[id] = &EngineInfo{ID: id}
			info.Engines = append(info.Engines, h.engines[id])
		}
		o.Engine = h.engines[id]
	}
	if len(wanted) == 0 {
		return
	}
	list, refused, err := m.asks(ctx)("CLIENT", "LIST")
	found := inspect.Connections(string(list.Bytes), wanted)
	for id := range wanted {
		h.engines[id].Addr, h.engines[id].Hidden = found[id].Addr, cmp.Or(refused, err)
	}
}

// redLockWaits are the RedLocks that wait for locks of this engine. A RedLock waits at one server for a second, then at another
// one, and asks all of them in between. So it is said to wait at each of its servers, since it was refused first.
func (e *Engine) redLockWaits() (all []driver.NameUses) {
	for _, q := range e.redLocks() {
		for _, m := range q.all.locks {
			if m.home != e {
				continue
			}
			u := driver.Use{Kind: m.key.Kind.String(), Since: q.ListedFor()}
			if o := q.opts.origin; o != nil {
				u.Stack, u.Under = o.Stack, o.Under
			}
			all = append(all, driver.NameUses{Name: m.key.Name, Waiting: 1, Uses: []driver.Use{u}})
		}
	}
	return all
}

// Cycle is a deadlock: each of its waits is for a lock that the caller of the next one holds, and the
// last for one that the caller of the first holds.
type Cycle struct {
	Waits []Use
	// Possible: it is a deadlock only if the callers that wait are those that hold. The contexts of some waits
	// carry no hold; the locks in their Under are held by some caller of the process, as the server says.
	Possible bool
}

// Deadlocks asks all engines for waits whose callers hold other locks, and returns the cycles among these. Pawl
// knows that a caller holds a lock if the context of its Lock carries the hold (Hold.Context, Do). Other cycles
// are Possible: processes hold what the next ones wait for. At most 10 of these follow the others.
//
// Each cycle was there twice, a quarter of a second apart, and the server confirms its holders. It
// ends by itself if a wait in it has a deadline. Each engine reports its 100 longest waits.
func (e *Engine) Deadlocks(ctx context.Context) ([]Cycle, error) {
	if err := (Mutex{home: e}).check(ctx); err != nil {
		return nil, err
	}
	var first *heard
	cycles, err := e.scan().Deadlocks(ctx, func() (all []inspect.Wait, err error) {
		h := e.ask(ctx, inspect.AboutWaits, "")
		first = cmp.Or(first, h)
		for _, a := range h.All {
			all = append(all, a.Waits()...)
		}
		return all, h.Err
	})
	var all []Cycle
	for _, cycle := range cycles {
		var c Cycle
		for i := range cycle {
			w := &cycle[i]
			u := first.use(first.of[w.From], &w.Use)
			if u.Name = w.Name; w.Guessed {
				u.Under, c.Possible = []string{cycle[(i+len(cycle)-1)%len(cycle)].Name}, true
			}
			c.Waits = append(c.Waits, u)
		}
		all = append(all, c)
	}
	switch {
	case err == nil:
		return all, nil
	case ctx.Err() != nil:
		return all, lockerr.Wrap(lockerr.NoAnswer, err)
	}
	return all, unasked(err)
}
