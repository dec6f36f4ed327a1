//go:build !race

package pipeline

import (
	"bytes"
	"net"
	"testing"

	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// fixedCall is a Request of fixed bytes that can be used again and again.
type fixedCall struct {
	bytes []byte
	done  chan struct{}
}

func newFixedCall() *fixedCall {
	return &fixedCall{bytes: wire.AppendCommand(nil, "EVALSHA", "0123456789012345678901234567890123456789", "1", "key", "id"), done: make(chan struct{}, 1)}
}

func (c *fixedCall) AppendCommand(dst []byte, _ request.ScriptForm) []byte {
	return append(dst, c.bytes...)
}

func (c *fixedCall) Complete(request.Reply) { c.done <- struct{}{} }

// answerOnes answers each command of size bytes with ":1" and allocates nothing.
func answerOnes(conn net.Conn, size int) {
	in := make([]byte, 64<<10)
	out := bytes.Repeat([]byte(":1\r\n"), len(in)/size+1)
	had := 0
	for {
		n, err := conn.Read(in)
		if err != nil {
			return
		}
		had += n
		if _, err := conn.Write(out[:4*(had/size)]); err != nil {
			return
		}
		had %= size
	}
}

func TestLane_Command_AllocatesNothing(t *testing.T) {
	for _, c := range sockettest.Carriers {
		// The TLS record layer allocates, and so does a wake of gnet.
		if c.TLS || c.InlineDepth < 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			w := newWorld(t, c)
			l, server := w.attached(nil, nil)
			served := make(chan struct{})
			go func() { defer close(served); answerOnes(server, len(newFixedCall().bytes)) }()

			window := make([]*fixedCall, 4*defaultInlineDepth)
			for i := range window {
				window[i] = newFixedCall()
			}
			together := func(n int) func() {
				return func() {
					for _, c := range window[:n] {
						l.Submit(c)
					}
					for _, c := range window[:n] {
						<-c.done
					}
				}
			}
			together(len(window))() // let buffers grow
			for _, pin := range []struct {
				commands int
				allocs   float64
			}{
				{1, 0},
				{defaultInlineDepth, 0},
				{len(window), 4}, // gnet allocates twice in a wake, whatever it carries
			} {
				if n := testing.AllocsPerRun(1000, together(pin.commands)); n > pin.allocs {
					t.Errorf("%v allocations per %d commands, want at most %v", n, pin.commands, pin.allocs)
				}
			}
			l.Close(request.ErrClosed)
			sockettest.Receive(t, l.downs, "down")
			server.Close()
			<-served
		})
	}
}
