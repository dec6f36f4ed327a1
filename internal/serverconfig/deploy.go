// Package serverconfig tells connections beside an engine's, and people, where its deployment is.
package serverconfig

import (
	"fmt"
	"strings"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/resp"
)

// Server names what answers commands there. That is an address only if there is one server: of
// several, the first may be a replica, a sentinel, or away.
func Server(c engine.Config) string {
	addrs := strings.Join(c.Addrs, ", ")
	switch c.Topology {
	case "cluster":
		return "a node of the cluster of " + addrs
	case "sentinel":
		return fmt.Sprintf("the primary %q", c.Master)
	case "replicas":
		return "the primary among " + addrs
	}
	return addrs
}

// Config is what resp needs to reach the deployment of an engine. The zero value of
// what c leaves open stays zero.
func Config(c engine.Config) resp.Config {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{"127.0.0.1:6379"}
		if c.Topology == "sentinel" {
			c.Addrs[0] = "127.0.0.1:26379"
		}
	}
	out := resp.Config{
		Network: "tcp", Addr: c.Addrs[0], Addrs: c.Addrs, Master: c.Master, AddrMap: c.AddrMap,
		Username: c.Username, Password: c.Password, Credentials: c.Credentials,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword, SentinelCredentials: c.SentinelCredentials,
		DB: c.DB, TLS: c.TLS, SentinelTLS: c.SentinelTLS, RefreshTLS: c.RefreshTLS, Dialer: c.Dialer, DialTimeout: c.DialTimeout, CommandTimeout: c.CommandTimeout,
	}
	if c.Addrs[0] != "" && c.Addrs[0][0] == '/' {
		out.Network = "unix"
	}
	for t := resp.Standalone; t <= resp.Replicas; t++ {
		if t.String() == c.Topology {
			out.Topology = t
		}
	}
	return out
}
