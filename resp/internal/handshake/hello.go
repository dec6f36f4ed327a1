package handshake

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// HELLO, which needs no permission, is answered from Redis 6.0 on, and tells what the
// server is.

// acquainted looks at the answer of a fresh connection to HELLO.
func (c *Config) acquainted(v wire.Value) error {
	if c.Kind == topology.Standalone && replyreader.Field(v, "mode") == "cluster" {
		c.Logger.Warn("resp: the server is a node of a cluster; connect with redis+cluster://, or what its other nodes serve is refused", "addr", c.Addr)
	}
	return nil
}

// isUnknownCommand reports whether v says that the server does not know the command. It
// is too old, then, or a proxy.
func isUnknownCommand(v wire.Value) bool {
	return v.Kind == wire.KindError && request.UnknownCommand(wire.NewServerError(v.Bytes))
}

// redisVersion is a line of INFO.
var redisVersion = regexp.MustCompile(`(?m)^redis_version:((\d+)\.[\w.]*)`)

// checkVersion asks a server that did not know HELLO for its version. One that does not
// tell is left alone.
func checkVersion(r *replyreader.Stream) error {
	if _, err := r.Conn.Write(wire.AppendCommand(nil, "INFO", "server")); err != nil {
		return err
	}
	v, err := r.Next()
	if err != nil {
		return fmt.Errorf("no answer to INFO: %w", err)
	}
	m := redisVersion.FindSubmatch(v.Bytes)
	if v.Kind != wire.KindBulk || m == nil {
		return nil
	}
	if major, err := strconv.Atoi(string(m[2])); err != nil || major >= 6 {
		return nil
	}
	return fmt.Errorf("%w: it is Redis %s", ErrTooOld, m[1])
}
