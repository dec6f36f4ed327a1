package driver

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/resp"
)

// Key names a lock: the name is the mapped one, as it stands on the server. Kinds that share a
// key there share an entry.
type Key struct {
	Name string
	Kind kind.Kind
}

// ValidInCluster refuses a name whose channel would be in another slot than its key.
func (k Key) ValidInCluster() error {
	channel, ok := k.Kind.ValidInCluster(k.Name)
	if ok {
		return nil
	}
	return lockerr.Invalid("the name %q cannot be used in a cluster: its channel %q would belong to another slot, where its release cannot be announced; use one pair of braces with something in it, as in orders:{42}, or none",
		lockerr.Shorten(k.Name), lockerr.Shorten(channel))
}

// Engine is the front door, for what its users are told.
type Engine interface {
	// LossError is the error of a hold that was lost. It is called under the shard's lock.
	LossError(kind uint8, name string, why lock.Loss) error
	// AckError is that of a grant or an Extend that too few replicas have. It has no name yet.
	AckError(kind uint8, ack *resp.Ack) error
	// NotPublished: a release was not announced, as the server refused the message. It is called
	// under the shard's lock.
	NotPublished(name string)
	// Spawn runs user code on a goroutine that Close waits for.
	Spawn(func())
}

// Config is what a Table drives its entries with.
type Config struct {
	Engine Engine
	ID     string // the first half of every owner
	Lock   lock.Config
	World  env.Env
	// Keep is how long a release is remembered, for a server that replaces its server. It is 0
	// for one that nothing replaces.
	Keep time.Duration
	// Slotted: names are of slots, which may be on different servers.
	Slotted bool
}

const shardCount = 256

// Table has the names of an engine, in shards, and what drives them. Init sets it up; SetTimers
// and then SetClient give it the rest, before the first event.
type Table struct {
	Config
	Client   env.Client
	Timers   env.Timers
	Renewer  *watchdog.Renewer
	Recovery *recovery.Recovery
	Outages  Outages
	Pending  PendingOps
	Listener *inspect.Listener // nil: it is off

	closing closing
	shards  [shardCount]Shard
}

// Init sets up an empty table.
func (t *Table) Init(cfg Config) {
	t.Config = cfg
	t.closing.emptied = make(chan struct{}, 1)
	t.Pending.watches.AfterFunc = cfg.World.AfterFunc
	if t.Lock.LongestSleep = lock.LongestSleep; t.Slotted {
		t.Lock.LongestSleep = lock.LongestSleepMissed
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.Table = t
		s.Locks.Init(s, &t.Lock, kind.Traits())
		s.counters.Locks = &s.Locks
	}
}

// SetTimers gives the table its timers; onRound hears of renewals.
func (t *Table) SetTimers(timers env.Timers, onRound func(watchdog.BatchResult)) {
	t.Timers = timers
	t.Outages.init(t.World.Clock, timers)
	t.Renewer = watchdog.New(watchdog.Config{
		Clock: t.World.Clock, Wheel: timers, Draw: t.World.Draw, Lease: t.Lock.Lease,
		Submit: t.submitRenewal, Slotted: t.Slotted, OnBatch: onRound,
	})
}

// SetClient gives the table its client, whose events come to Up and Rerouted.
func (t *Table) SetClient(c env.Client) {
	t.Client = c
	t.Recovery = recovery.New(recovery.Config{
		Clock: t.World.Clock, Wheel: t.Timers, Client: c, Shuffle: t.World.Shuffle, Engine: t, Keep: t.Keep,
	})
}

// Up hears that a connection has come.
func (t *Table) Up(role resp.Role, lane env.Lane) {
	switch role {
	case resp.RoleLane:
		t.Recovery.Up(lane)
	case resp.RoleRenewal, resp.RoleDurableRenewal:
		t.Renewer.Resume()
	}
}

// Down hears that a connection was lost.
func (t *Table) Down(role resp.Role) {
	if role == resp.RoleLane {
		t.Outages.Check()
	}
}

// Rerouted hears that names may have come to other servers.
func (t *Table) Rerouted() {
	t.Recovery.Rerouted()
	t.Renewer.Resume()
	t.Outages.Check()
}

// submitRenewal sends a renewal script, for the renewer.
func (t *Table) submitRenewal(slot uint16, r resp.DurableRequest) {
	if r.Wants() != 0 {
		t.Client.SubmitDurableRenewal(uint64(slot), r)
		return
	}
	t.Client.SubmitRenewal(uint64(slot), r)
}

// Shard is the shard of a name.
func (t *Table) Shard(route uint64) *Shard {
	// The low bits pick the node and the lane, the high ones the shard.
	return &t.shards[route>>56]
}

// Shards are all of them.
func (t *Table) Shards() []Shard { return t.shards[:] }

// locked visits all shards, each under its lock.
func (t *Table) locked(visit func(*Shard) bool) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		more := visit(s)
		s.Unlock()
		if !more {
			return
		}
	}
}

// Channel is where the end of a lock is announced.
func (t *Table) Channel(k Key) script.Channel { return k.Kind.Channel(k.Name, t.Verb()) }

// Verb is how a release is announced. Sharded messages and plain ones are strangers.
func (t *Table) Verb() string {
	if t.Client.Sharded() {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// Counters are the statistics of all shards.
func (t *Table) Counters() (all lock.Counters) {
	for s := range t.locked {
		all.Add(&s.Locks.Count)
	}
	return all
}
