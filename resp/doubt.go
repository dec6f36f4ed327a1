package resp

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/internal/reply"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// doubt takes a refusal that says something of the connection. It runs on the event loop.
func (n *node) doubt(d topology.Doubt, a pipeline.Answer, e *ServerError, at topology.Refused) {
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	m := n.mu.suspicion.heard(d, a.Sent, now)
	n.mu.Unlock()
	switch {
	case m == askAnother:
		q := questionAbout(a.Request, e)
		n.goLabelled("asking", func(ctx context.Context) { n.ask(ctx, q, at) })
	case m == replaceAll && d == topology.Certain:
		n.replace(fmt.Errorf("resp: the connection is refused: %w", e))
	case m == replaceAll:
		n.replace(fmt.Errorf("resp: another server is behind this address by now, the one before refuses: %w", e))
	}
}

// ask has a new connection tell whether it is served.
func (n *node) ask(ctx context.Context, question []string, at topology.Refused) {
	v, err := n.cfg.greeting().Ask(ctx, question...)
	served := err == nil && isServed(question, v, at)
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.suspicion.answered(served, now)
}

// questionAbout is what a new connection is asked when e has refused r: something that changes
// nothing, and is refused in the same state of the server.
//
//	READONLY       ROLE. A script that writes nothing is served by a replica
//	all others     such a script, with the same key
//	without a key  PING
func questionAbout(r Request, e *ServerError) []string {
	if e.Code == "READONLY" {
		return []string{"ROLE"}
	}
	if key := keyOf(r); key != "" {
		return []string{"EVAL", "return 1", "1", key}
	}
	return []string{"PING"}
}

// keyOf reads the first key of a request from its encoding; "" if it has none.
func keyOf(r Request) string {
	v, _, err := wire.Decode(r.AppendCommand(nil, Short))
	words := reply.Elements(v)
	if err != nil || len(words) < 2 {
		return ""
	}
	if name := string(words[0].Bytes); !strings.EqualFold(name, "EVALSHA") && !strings.EqualFold(name, "EVAL") {
		return string(words[1].Bytes)
	}
	if len(words) < 4 {
		return ""
	}
	if n, err := strconv.Atoi(string(words[2].Bytes)); err != nil || n < 1 {
		return ""
	}
	return string(words[3].Bytes)
}

// isServed judges the answer to a question. Whatever does not say "not now" is better than what
// the other connections are told: a server that does not know the question, say.
func isServed(question []string, v Value, at topology.Refused) bool {
	if v.Kind != wire.KindError {
		return question[0] != "ROLE" || topology.IsPrimary(v) == nil
	}
	e := wire.NewServerError(v.Bytes)
	return topology.ConsequenceOf(e, at).To != "" || !exchange.RefusalOf(e).NotNow()
}
