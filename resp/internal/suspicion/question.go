package suspicion

import (
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/internal/reply"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Question is what a new connection is asked when e has refused r: something that changes
// nothing, and is refused in the same state of the server.
//
//	READONLY       ROLE. A script that writes nothing is served by a replica
//	all others     such a script, with the same key
//	without a key  PING
func Question(r exchange.Request, e *wire.ServerError) []string {
	if e.Code == "READONLY" {
		return []string{"ROLE"}
	}
	if key := keyOf(r); key != "" {
		return []string{"EVAL", "return 1", "1", key}
	}
	return []string{"PING"}
}

// keyOf reads the first key of a request from its encoding; "" if it has none.
func keyOf(r exchange.Request) string {
	v, _, err := wire.Decode(r.AppendCommand(nil, exchange.Short))
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

// Served judges the answer to a question of a command that was refused at this place. Whatever does not say "not now" is better than what
// the other connections are told: a server that does not know the question, say.
func Served(question []string, v wire.Value, at topology.Refused) bool {
	if v.Kind != wire.KindError {
		return question[0] != "ROLE" || topology.IsPrimary(v) == nil
	}
	e := wire.NewServerError(v.Bytes)
	return topology.ConsequenceOf(e, at).To != "" || !exchange.RefusalOf(e).NotNow()
}
