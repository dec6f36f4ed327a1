package engine

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/pasted"
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
// client_name, lease, margin, hand_over, fair_wait, command_timeout, dial_timeout,
// close_timeout, ack_timeout (positive durations such as 10s), lanes, sentinel_username,
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
	raw, scheme := canonical(pasted.Text(raw))
	if scheme.path == nil && !strings.Contains(raw, "://") {
		return Config{}, reason.Invalid("the URL has no scheme: write redis://HOST:PORT, rediss://HOST:PORT for TLS, unix:///PATH, redis+cluster://HOST,HOST or redis+sentinel://HOST,HOST/MASTER")
	}
	raw, hosts, several := splitHosts(raw)
	if scheme, yes := plainList(raw); yes {
		return Config{}, reason.Invalid("the URL names several addresses, and %s:// takes one: say what they are together, with redis+cluster://, redis+sentinel:// or redis+replicas:// (rediss+... over TLS)", scheme)
	}
	u, err := url.Parse(raw)
	if err == nil && strings.Contains(u.Path+u.RawQuery+u.Fragment+u.Opaque, "@") && u.Scheme != "unix" {
		// redis://user:12/34@host: what we would quote as the path is half of a
		// password.
		return Config{}, reason.Invalid("the URL has an @ behind its host: special characters in a password are written as %%XX (/ as %%2F, ? as %%3F, # as %%23)")
	}
	if err != nil {
		// url.Error quotes the whole URL, the password included.
		return Config{}, reason.Invalid("the URL cannot be parsed: it must look like redis://user:password@host:6379/0 (special characters in a password are written as %%XX)%s", oddities(raw))
	}
	if scheme.path == nil {
		return Config{}, reason.Invalid("the URL's scheme %q is not known: %s", u.Scheme, otherScheme(u.Scheme))
	}
	var c Config
	if err := c.takeUser(u.User); err != nil {
		return Config{}, err
	}
	path, err := scheme.path(&c, u, hosts, several)
	if err != nil {
		return Config{}, err
	}
	if scheme.tls {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12} // each server under its own name
		if c.Topology == "" {
			c.TLS.ServerName = u.Hostname()
		}
	}
	if err := c.takeSettings(u, path); err != nil {
		return Config{}, err
	}
	if err := c.withDefaults().validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// oddities names what a URL can have that cannot be seen, or was not meant.
func oddities(raw string) string {
	switch {
	case strings.ContainsAny(raw, "\r\n"):
		return "; there is a line break in it, as at the end of a password that came from a file"
	case strings.Contains(raw, "${"), strings.Contains(raw, "$("):
		return "; there is a ${...} in it that no shell has replaced"
	case strings.ContainsAny(raw, " \t"):
		return "; there is a blank in it"
	}
	return ""
}

// takeUser reads what stands before the @. A user with an empty password is one that needs
// none.
func (c *Config) takeUser(user *url.Userinfo) error {
	if user == nil {
		return nil
	}
	name := user.Username()
	password, given := user.Password()
	switch {
	case name == "default" || name == "":
		c.Password = password
	case password != "":
		c.Username, c.Password = name, password
	case given:
		c.Credentials = func(context.Context) (string, string, error) { return name, "", nil }
	default:
		return reason.Invalid("the URL names a user without a password: write redis://user:password@host, redis://:password@host for the default user, or redis://user:@host for a user that needs no password")
	}
	return nil
}

// takeHost reads the address of one server.
func (c *Config) takeHost(u *url.URL, _ []string, _ bool) (path string, err error) {
	host, port := u.Hostname(), cmp.Or(u.Port(), "6379")
	if host == "" {
		return "", reason.Invalid("the URL names no host: redis://host:6379")
	}
	if strings.Count(u.Host, ":") > 1 && u.Host[0] != '[' {
		return "", reason.Invalid("the URL's host has more than one colon: an IPv6 address is written in brackets, redis://[::1]:6379")
	}
	c.Addrs = []string{net.JoinHostPort(host, port)}
	return u.Path, nil
}

// takeSocket reads the path of a unix socket.
func (c *Config) takeSocket(u *url.URL, _ []string, _ bool) (path string, err error) {
	if u.Host != "" || u.Path == "" || u.Path[0] != '/' {
		return "", reason.Invalid("a unix URL must hold an absolute path: unix:///run/redis.sock")
	}
	c.Addrs = []string{u.Path}
	return "", nil
}

// authority cuts a URL into its scheme, what stands before the @, hosts, and the rest.
func authority(raw string) (scheme, user, hosts, tail string) {
	scheme, hosts, _ = strings.Cut(raw, "://")
	if i := strings.IndexAny(hosts, "/?#"); i >= 0 {
		hosts, tail = hosts[:i], hosts[i:]
	}
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	return scheme, user, hosts, tail
}

// splitHosts takes the list of hosts out of a URL whose scheme names a topology,
// since a URL proper has one host, and leaves a stand-in.
func splitHosts(raw string) (rest string, hosts []string, several bool) {
	scheme, user, list, tail := authority(raw)
	if !strings.Contains(scheme, "+") || list == "" {
		return raw, nil, false
	}
	if user != "" {
		name, _, _ := strings.Cut(user, ":")
		if strings.Contains(user[:len(user)-1], "@") || strings.Contains(name, ",") {
			list = "@" // refused by takeHosts
		}
	}
	return scheme + "://" + user + "hosts" + tail, strings.Split(list, ","), true
}

// plainList reports whether the URL has a list of hosts behind a scheme that takes one
// host, and that scheme. What has an @ behind the hosts is rather a password.
func plainList(raw string) (scheme string, yes bool) {
	scheme, _, hosts, tail := authority(raw)
	if scheme != "redis" && scheme != "rediss" {
		return "", false
	}
	return scheme, strings.Contains(hosts, ",") && !strings.Contains(tail, "@")
}

// takeHosts reads what stands behind the scheme of a topology.
func (c *Config) takeHosts(u *url.URL, hosts []string, several bool) (path string, err error) {
	if !several {
		return "", reason.Invalid("the URL names no host: redis+cluster://host:6379,host:6379")
	}
	_, c.Topology, _ = strings.Cut(u.Scheme, "+")
	for _, h := range hosts {
		if err := c.addHost(h); err != nil {
			return "", err
		}
	}
	return u.Path, nil
}

// addHost adds one of several addresses.
func (c *Config) addHost(h string) error {
	h = strings.TrimSpace(h)
	port := "6379"
	if c.Topology == "sentinel" {
		port = "26379"
	}
	bare, _, zoned := strings.Cut(h, "%")
	switch {
	case h == "":
		return reason.Invalid("the URL has an empty host in its list")
	case strings.Contains(h, "@"), zoned && !strings.HasPrefix(bare, "["):
		return reason.Invalid("the URL's list of hosts has an @ or %% in it: user and password stand once, before the first host, and special characters in them are written as %%XX")
	case zoned: // of an IPv6 address: [fe80::1%25eth0]
		h = strings.Replace(h, "%25", "%", 1)
	}
	switch {
	case strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]"):
		h = net.JoinHostPort(h[1:len(h)-1], port)
	case !strings.Contains(h, ":"):
		h = net.JoinHostPort(h, port)
	}
	if !validAddr(h) || h[0] == '/' {
		// Not quoted: it may be half of a password.
		return reason.Invalid("each host of the URL's list must be host:port")
	}
	c.Addrs = append(c.Addrs, h)
	return nil
}

// takeMaster reads the sentinels' name for the primary, and leaves the database of the path.
// Lettuce writes the name behind a #, others as a setting.
func (c *Config) takeMaster(path string, names []string) (db string, err error) {
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		c.Master, path, _ = strings.Cut(path, "/")
		if c.Master == "" {
			return "", reason.Invalid("the URL does not say what the sentinels call the primary: redis+sentinel://host:26379/mymaster")
		}
		return path, nil
	}
	if c.Master = names[0]; slices.ContainsFunc(names, func(name string) bool { return name != c.Master }) {
		return "", reason.Invalid("the URL names the primary twice: redis+sentinel://host:26379/mymaster")
	}
	if first, rest, _ := strings.Cut(path, "/"); first == c.Master {
		return rest, nil
	}
	return path, nil
}

// takeDB reads the database of the path.
func (c *Config) takeDB(path string, named bool) error {
	if path == "" {
		return nil
	}
	if named { // also if they agree, or say 0
		return reason.Invalid("the URL names the database twice: in its path and as db")
	}
	db, err := strconv.Atoi(path)
	if err != nil || db < 0 {
		return reason.Invalid("the URL's path (%q) must be a database number; a prefix of all names belongs into Config.NameMapper", reason.Shorten(path))
	}
	c.DB = db
	return nil
}
