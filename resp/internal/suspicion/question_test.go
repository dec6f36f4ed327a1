package suspicion

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// rawRequest is a Request of any words.
type rawRequest []string

func (r rawRequest) AppendCommand(dst []byte, _ exchange.Form) []byte {
	return wire.AppendCommand(dst, r...)
}
func (r rawRequest) Complete(exchange.Reply) {}

func TestQuestion_OfARefusedRequest_HasItsKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		request rawRequest
		key     string
	}{
		{rawRequest{"EVALSHA", "sha", "2", "a", "b", "x"}, "a"},
		{rawRequest{"evalsha", "sha", "0", "x"}, ""},
		{rawRequest{"EVALSHA", "sha", "2"}, ""},
		{rawRequest{"EVAL", "return 1", "1", "{a}b"}, "{a}b"},
		{rawRequest{"GET", "a b"}, "a b"},
		{rawRequest{"PING"}, ""},
	} {
		if got := keyOf(c.request); got != c.key {
			t.Errorf("%v: %q", c.request, got)
		}
	}
}

func TestServed_Answers_TellWhetherTheConnectionIsBetter(t *testing.T) {
	t.Parallel()
	at := topology.Refused{Kind: topology.Cluster, Addr: "a:1"}
	script, role := []string{"EVAL", "return 1", "1", "x"}, []string{"ROLE"}
	for _, c := range []struct {
		question []string
		answer   string
		want     bool
	}{
		{script, ":1\r\n", true},
		{script, "-MOVED 7 a:1\r\n", false},
		{script, "-MOVED 7 b:1\r\n", true}, // it knows who serves the slot
		{script, "-CLUSTERDOWN x\r\n", false},
		{script, "-LOADING x\r\n", false},
		{script, "-NOAUTH x\r\n", false},
		{script, "-NOPERM x\r\n", true}, // nobody can tell
		{script, "-ERR unknown command 'EVAL'\r\n", true},
		{role, "*1\r\n$6\r\nmaster\r\n", true},
		{role, "*1\r\n$5\r\nslave\r\n", false},
		{role, "-ERR unknown command 'ROLE'\r\n", true},
	} {
		v, _, err := wire.Decode([]byte(c.answer))
		if err != nil {
			t.Fatal(err)
		}
		if got := Served(c.question, v, at); got != c.want {
			t.Errorf("%s: %q: %v", c.question[0], c.answer, got)
		}
	}
}
