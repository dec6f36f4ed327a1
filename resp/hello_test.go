package resp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
)

// What a server that does not know HELLO says of itself decides. One that says nothing
// is a proxy, or a server whose owner has renamed commands.
func TestServerThatIsTooOldIsRefusedAndToldApartFromAProxy(t *testing.T) {
	t.Parallel()
	info := func(version string) fakenode.Action {
		text := "# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone\r\n"
		return fakenode.Raw(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
	}
	for name, c := range map[string]struct {
		info   fakenode.Action
		tooOld string // what the error says of the version
	}{
		"Redis 5":        {info("5.0.14"), "Redis 5.0.14"},
		"Redis 3":        {info("3.2.100"), "Redis 3.2.100"},
		"proxy":          {info("7.2.4"), ""},
		"Redis 10":       {info("10.0.0"), ""},
		"says nothing":   {fakenode.Error("ERR unknown command `INFO`, with args beginning with: `server`, "), ""},
		"says something": {fakenode.Raw("+OK\r\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := fakenode.New(t)
			n.On(fakenode.Is("HELLO"), fakenode.Error("ERR unknown command `HELLO`, with args beginning with: `2`, "))
			n.On(fakenode.Is("INFO", "server"), c.info)
			client := open(t, Config{Addr: n.Addr(), Lanes: 1})
			err := client.WaitReady(testContext(t))
			if c.tooOld == "" {
				if err != nil {
					t.Fatalf("WaitReady: %v", err)
				}
				return
			}
			// At once: it takes a human.
			if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), c.tooOld) || !strings.Contains(err.Error(), "6.0") || strings.Contains(err.Error(), "is not ready") {
				t.Fatalf("WaitReady: %v", err)
			}
		})
	}
}

// Before 6.0 there are no users: it is refused with the first word.
func TestUserOnAServerWithoutUsersIsExplained(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("AUTH"), fakenode.Error("ERR wrong number of arguments for 'auth' command"))
	c := open(t, Config{Addr: n.Addr(), Username: "ada", Password: "top-secret"})
	err := c.WaitReady(testContext(t))
	if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "wrong number of arguments") || strings.Contains(err.Error(), "top-secret") {
		t.Fatalf("WaitReady: %v", err)
	}
}
