package topology

import (
	"context"
	"errors"

	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Sharded asks primaries until one says whether the deployment has sharded channels. One that
// cannot tell for now says nothing; any other refusal means that there are none to be used, and is logged.
// It is for Follow, which decides once: what others publish, and where they listen, hangs on this,
// so all processes must decide alike.
func (x *Explorer) Sharded(ctx context.Context, primaries []string) (yes bool, err error) {
	addrs := x.scouts.candidates("", primaries, nil)
	without, err := askFirst(ctx, x.scouts, addrs, x.withoutSharded)
	if err != nil || without == nil {
		return err == nil, err
	}
	switch r := exchange.RefusalOf(without.refusal); {
	case r.Forbidden():
		x.cfg.Logger.Warn("resp: this user may not ask for sharded channels, so plain ones are used, and sharded messages of Redisson are not heard; grant +pubsub|shardnumsub, or set sharding", "err", without.refusal)
	case r.Lasts == exchange.Permanent && !without.claimed:
		x.cfg.Logger.Info("resp: the cluster has no sharded channels, so plain ones are used", "err", without.refusal)
	default:
		x.cfg.Logger.Warn("resp: the cluster refuses sharded channels, so plain ones are used", "err", without.refusal)
	}
	return false, nil
}

// without says that a server has no sharded channels.
type without struct {
	refusal *wire.ServerError
	claimed bool // it has said before that it has
}

// probe is the sharded channel that is asked for; whose slot it is does not matter.
const probe = "pawl:probe"

// withoutSharded asks a server: nil means that it has sharded channels. First in the way in which Redisson
// asks, for the decisions must be the same. Then by subscribing: some servers answer the question,
// and have none. A server that sends that elsewhere, or forbids this channel, knows what it is.
func (x *Explorer) withoutSharded(ctx context.Context, addr string) (*without, error) {
	ask := func(words ...string) (refused *wire.ServerError, err error) {
		_, err = x.scouts.ask(ctx, x.cfg.Servers, addr, words...)
		if errors.As(err, &refused) {
			err = nil
		}
		return refused, err
	}
	refused, err := ask("PUBSUB", "SHARDNUMSUB", "0")
	switch {
	case err != nil:
		return nil, err
	case refused != nil && exchange.RefusalOf(refused).NotNow():
		return nil, unansweredBy(ctx, addr, "PUBSUB", refused)
	case refused != nil:
		return &without{refusal: refused}, nil
	}
	refused, err = ask("SSUBSCRIBE", probe)
	if err != nil {
		return nil, err
	}
	if refused != nil {
		if r := exchange.RefusalOf(refused); r.NotNow() || r.Forbidden() {
			return nil, nil
		}
		return &without{refusal: refused, claimed: true}, nil
	}
	if refused, err := ask("SUNSUBSCRIBE", probe); refused != nil || err != nil {
		x.scouts.forget(x.cfg.Servers, addr) // it may be subscribed still
	}
	return nil, nil
}
