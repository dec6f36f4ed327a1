//go:build pawl_invariants

package pipeline

import (
	"bytes"
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
)

// keeper is a Request that keeps what it was lent.
type keeper struct{ kept []byte }

func (k *keeper) AppendCommand(dst []byte, _ request.ScriptForm) []byte { return append(dst, "GET"...) }
func (k *keeper) Complete(r request.Reply)                              { k.kept = r.Value.Bytes }

func (k *keeper) wantsPoison(t *testing.T) {
	t.Helper()
	if len(k.kept) == 0 || !bytes.Equal(k.kept, bytes.Repeat([]byte{0xDB}, len(k.kept))) {
		t.Errorf("bytes kept too long are %q, want poison", k.kept)
	}
}

func TestPipeline_BorrowedBytes_ArePoisonedAfterwards(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	var k keeper
	l.Submit(&k)
	tr.sink.OnBytes([]byte("$5\r\nhello\r\n"))
	k.wantsPoison(t)

	l.Submit(&k)
	tr.sink.OnBytes([]byte("$5\r\nhe"))
	tr.sink.OnBytes([]byte("llo\r\n"))
	k.wantsPoison(t)
}
