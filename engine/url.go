package engine

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/location"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// ParseURL turns a URL into a Config:
//
//	redis://[user[:password]@]host[:port][/db]    port 6379 by default
//	redis+cluster://...@host,host,...[/db]        some nodes of a cluster
//	redis+sentinel://...@host,.../master[/db]     sentinels, port 26379 by default
//	redis+replicas://...@host,...[/db]            a primary and its replicas
//	rediss://, rediss+cluster://, ...             the same over TLS
//	unix://[user[:password]@]/path/to/socket      ?db=N selects the database
//
// valkey and valkeys mean the same as redis and rediss. Settings may follow as a query: db,
// client_name, lease, margin, hand_over, fair_wait, command_timeout, lookup_interval,
// dial_timeout, close_timeout, ack_timeout (positive durations such as 10s), lanes, sentinel_username,
// sentinel_password, sentinel_tls (on or off), tls_server_name, sharding, replicas (all,
// majority or a number). hand_over=1ns switches HandOver off. An unknown setting is an error.
// Forms and settings of other clients are accepted if their meaning is certain, or the error
// says what to write. Their pools, protocols and timeouts of single reads are ignored, which
// New logs.
//
// A password without a user is the default user's: redis://:secret@host. A user without
// a password is an error, but "user:@" is a user that needs none. IPv6 addresses are written
// in brackets. Errors never contain the password.
func ParseURL(raw string) (Config, error) {
	var c Config
	var serverName, sentinelTLS string
	replicas := "0"
	l, err := location.Parse(raw, &location.Settings{
		Durations: map[string]*time.Duration{
			"lease": &c.Lease, "margin": &c.Margin, "hand_over": &c.HandOver, "fair_wait": &c.FairWait, "command_timeout": &c.CommandTimeout,
			"lookup_interval": &c.LookupInterval, "dial_timeout": &c.DialTimeout, "close_timeout": &c.CloseTimeout, "ack_timeout": &c.AckTimeout,
		},
		Numbers: map[string]*int{"lanes": &c.Lanes},
		Texts: map[string]*string{
			"client_name": &c.ClientName, "sentinel_username": &c.SentinelUsername, "sentinel_password": &c.SentinelPassword,
			"sharding": &c.Sharding, "tls_server_name": &serverName, "replicas": &replicas,
		},
		Switches: map[string]*string{"sentinel_tls": &sentinelTLS},
	})
	if err != nil {
		return Config{}, err
	}
	c.Topology, c.Addrs, c.Master, c.DB, c.ignored = l.Topology, l.Addrs, l.Master, l.DB, l.Ignored
	if c.Username, c.Password = l.Username, l.Password; l.NoPassword {
		c.Username = ""
		c.Credentials = func(context.Context) (string, string, error) { return l.Username, "", nil }
	}
	var ok bool
	if c.Replicas, ok = replicasOf(replicas); !ok {
		return Config{}, reason.Invalid("the URL's replicas (%q) must be all, majority, or a number up to %d", reason.Shorten(replicas), maxReplicas)
	}
	if l.TLS {
		c.TLS = &tls.Config{ServerName: l.Host, MinVersion: tls.VersionTLS12} // several servers: each under its own name
	}
	if err := c.takeTLS(serverName, sentinelTLS); err != nil {
		return Config{}, err
	}
	if err := c.withDefaults().validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// takeTLS reads what the settings say of TLS.
func (c *Config) takeTLS(serverName, sentinelTLS string) error {
	switch sentinelTLS {
	case "on":
		if c.SentinelTLS = c.TLS; c.TLS == nil {
			c.SentinelTLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	case "off":
		c.SentinelTLS = NoTLS
	}
	if serverName == "" {
		return nil
	}
	if c.TLS == nil && (c.SentinelTLS == nil || c.SentinelTLS == NoTLS) {
		return reason.Invalid("the URL's tls_server_name needs TLS: write rediss instead of redis")
	}
	for _, cfg := range []*tls.Config{c.TLS, c.SentinelTLS} {
		if cfg != nil && cfg != NoTLS {
			cfg.ServerName = serverName
		}
	}
	return nil
}
