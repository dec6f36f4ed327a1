package resp

import (
	"context"
	"net"

	"github.com/pawl-lock/pawl/resp/internal/handshake"
)

// purposes are what package handshake calls the roles.
var purposes = [...]handshake.Purpose{
	RoleLane:           handshake.Commands,
	RoleRenewal:        handshake.Renewals,
	RolePubSub:         handshake.Messages,
	RoleDurable:        handshake.Durable,
	RoleDurableRenewal: handshake.DurableRenewals,
	roleProbe:          handshake.Probing,
}

// connect makes a connection for a role: see package handshake.
func (c *Config) connect(ctx context.Context, role Role) (net.Conn, error) {
	return c.handshakeConfig().Connect(ctx, purposes[role])
}

// handshakeConfig is the part of c that concerns each connection.
func (c *Config) handshakeConfig() *handshake.Config {
	return &handshake.Config{
		Kind:        c.Topology.kind(),
		Network:     c.Network,
		Addr:        c.Addr,
		TLS:         c.TLS,
		Username:    c.Username,
		Password:    c.Password,
		Credentials: c.Credentials,
		DB:          c.DB,
		ClientName:  c.ClientName,
		Dialer:      c.Dialer,
		DialTimeout: c.DialTimeout,
		Scripts:     c.Scripts,
		Identity:    c.identity,
		Clock:       c.Clock,
		Logger:      c.Logger,
		AuthBackoff: c.authBackoff,
		RefreshTLS:  c.RefreshTLS,
		Sentinel:    c.sentinel,
	}
}
