package suspicion

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// rawRequest is a Request of any words.
type rawRequest []string

func (r rawRequest) AppendCommand(dst []byte, _ request.ScriptForm) []byte {
	return wire.AppendCommand(dst, r...)
}
func (r rawRequest) Complete(request.Reply) {}

func TestQuestion_AboutARefusedRequest_HasItsKey(t *testing.T) {
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
		if got := About(c.request).key; got != c.key {
			t.Errorf("%v: %q", c.request, got)
		}
	}
}

func TestServed_Answers_TellWhetherTheConnectionIsBetter(t *testing.T) {
	t.Parallel()
	at := topology.Refused{Kind: topology.Cluster, Addr: "a:1"}
	for answer, want := range map[string]bool{
		":0\r\n":                   true,
		"-MOVED 7 a:1\r\n":         false,
		"-MOVED 7 b:1\r\n":         true,  // it knows who serves the slot
		"-MOVED 7 c:1\r\n":         false, // as the others
		"-CLUSTERDOWN x\r\n":       false,
		"-READONLY x\r\n":          false,
		"-LOADING x\r\n":           false,
		"-NOAUTH x\r\n":            false,
		"-WRONGTYPE x\r\n":         true,
		"-NOPERM x\r\n":            true, // nobody can tell
		"-ERR unknown command\r\n": true,
	} {
		v, _, err := wire.Decode([]byte(answer))
		if err != nil {
			t.Fatal(err)
		}
		if got := Served(v, at, "c:1"); got != want {
			t.Errorf("%q: %v", answer, got)
		}
	}
}
