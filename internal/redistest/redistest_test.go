package redistest_test

import (
	"errors"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerAnswersOnBothListenersWhenStartReturns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, l := range [][2]string{{"tcp", s.Addr()}, {"unix", s.Socket()}} {
		conn, err := net.Dial(l[0], l[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, 7)
		if _, err := conn.Read(reply); err != nil || string(reply) != "+PONG\r\n" {
			t.Fatalf("%s: %q, %v", l[0], reply, err)
		}
		conn.Close()
	}
}

func TestMissingBinarySaysHowToInstall(t *testing.T) {
	t.Setenv(redistest.BinaryEnv, "")
	t.Setenv("PATH", "")
	_, err := redistest.Binary()
	if !errors.Is(err, redistest.ErrNotInstalled) {
		t.Fatal(err)
	}
	t.Log(err)
}
