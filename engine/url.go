package engine

import (
	"crypto/tls"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// ParseURL turns a URL into a Config:
//
//	redis://[user[:password]@]host[:port][/db]    port 6379 by default
//	redis+cluster://...@host,host,...             some nodes of a cluster
//	redis+sentinel://...@host,.../master[/db]     sentinels, port 26379 by default
//	redis+replicas://...@host,...[/db]            a primary and its replicas
//	rediss://, rediss+cluster://, ...             the same over TLS
//	unix://[user[:password]@]/path/to/socket      ?db=N selects the database
//
// Settings may follow as a query: db, client_name, lease, margin, hand_over, fair_wait,
// command_timeout, dial_timeout, close_timeout, ack_timeout (positive durations such as
// 10s), lanes, sentinel_username, sentinel_password, sharding, replicas (all, majority or
// a number). An unknown setting is an error. hand_over=1ns switches HandOver off.
//
// A password without a user is the default user's: redis://:secret@host. A user without
// a password is an error. IPv6 addresses are written in brackets. Errors never contain
// the password.
func ParseURL(raw string) (Config, error) {
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
		return Config{}, reason.Invalid("the URL cannot be parsed: it must look like redis://user:password@host:6379/0 (special characters in a password are written as %%XX)")
	}
	var c Config
	switch u.Scheme {
	case "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel", "redis+replicas", "rediss+replicas":
		if !several {
			return Config{}, reason.Invalid("the URL names no host: redis+cluster://host:6379,host:6379")
		}
		if err := c.takeHosts(u, hosts); err != nil {
			return Config{}, err
		}
	case "redis", "rediss":
		if err := c.takeHost(u); err != nil {
			return Config{}, err
		}
	case "unix":
		if u.Host != "" || u.Path == "" || u.Path[0] != '/' {
			return Config{}, reason.Invalid("a unix URL must hold an absolute path: unix:///run/redis.sock")
		}
		c.Addrs = []string{u.Path}
	case "":
		return Config{}, reason.Invalid("the URL has no scheme: it must begin with redis://, rediss:// or unix://, or name a topology: redis+cluster://")
	default:
		return Config{}, reason.Invalid("the URL's scheme %q is not one of redis, rediss, unix, redis+cluster, redis+sentinel, redis+replicas, rediss+cluster, rediss+sentinel, rediss+replicas", u.Scheme)
	}
	if u.Fragment != "" {
		return Config{}, reason.Invalid("the URL has a fragment (#): in a password, write it as %%23")
	}
	if u.User != nil {
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
		if c.Username != "" && c.Password == "" {
			return Config{}, reason.Invalid("the URL names a user without a password: write redis://user:password@host, or redis://:password@host for the default user")
		}
		if c.Username == "default" {
			c.Username = ""
		}
	}
	if err := c.takeSettings(u.RawQuery); err != nil {
		return Config{}, err
	}
	if err := c.withDefaults().validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) takeHost(u *url.URL) error {
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return reason.Invalid("the URL names no host: redis://host:6379")
	}
	if strings.Count(u.Host, ":") > 1 && u.Host[0] != '[' {
		return reason.Invalid("the URL's host has more than one colon: an IPv6 address is written in brackets, redis://[::1]:6379")
	}
	if port == "" {
		port = "6379"
	}
	c.Addrs = []string{net.JoinHostPort(host, port)}
	if u.Scheme == "rediss" {
		c.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	return c.takeDB(strings.Trim(u.Path, "/"), u.Query())
}

func (c *Config) takeDB(path string, settings url.Values) error {
	if path == "" {
		return nil
	}
	if settings.Has("db") { // also if they agree, or say 0
		return reason.Invalid("the URL names the database twice: in its path and as db")
	}
	db, err := strconv.Atoi(path)
	if err != nil || db < 0 {
		return reason.Invalid("the URL's path (%q) must be a database number", reason.Shorten(path))
	}
	c.DB = db
	return nil
}

// splitHosts takes the list of hosts out of a URL whose scheme names a topology,
// since a URL proper has one host, and leaves a stand-in.
func splitHosts(raw string) (rest string, hosts []string, several bool) {
	scheme, after, ok := strings.Cut(raw, "://")
	if !ok || !strings.Contains(scheme, "+") {
		return raw, nil, false
	}
	authority, tail := after, ""
	if i := strings.IndexAny(after, "/?#"); i >= 0 {
		authority, tail = after[:i], after[i:]
	}
	user := ""
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, authority = authority[:i+1], authority[i+1:]
		name, _, _ := strings.Cut(user, ":")
		if strings.Contains(user[:len(user)-1], "@") || strings.Contains(name, ",") {
			authority = "@" // refused by takeHosts
		}
	}
	if authority == "" {
		return raw, nil, false
	}
	return scheme + "://" + user + "hosts" + tail, strings.Split(authority, ","), true
}

// plainList reports whether the URL has a list of hosts behind a scheme that takes one
// host, and that scheme. What has an @ behind the hosts is rather a password.
func plainList(raw string) (scheme string, yes bool) {
	scheme, after, _ := strings.Cut(raw, "://")
	if scheme != "redis" && scheme != "rediss" {
		return "", false
	}
	authority, tail := after, ""
	if i := strings.IndexAny(after, "/?#"); i >= 0 {
		authority, tail = after[:i], after[i:]
	}
	hosts := authority[strings.LastIndexByte(authority, '@')+1:]
	return scheme, strings.Contains(hosts, ",") && !strings.Contains(tail, "@")
}

// takeHosts reads what stands behind the scheme of a topology.
func (c *Config) takeHosts(u *url.URL, hosts []string) error {
	transport, topology, _ := strings.Cut(u.Scheme, "+")
	c.Topology = topology
	port := "6379"
	if topology == "sentinel" {
		port = "26379"
	}
	for _, h := range hosts {
		switch {
		case h == "":
			return reason.Invalid("the URL has an empty host in its list")
		case strings.ContainsAny(h, "@%"):
			return reason.Invalid("the URL's list of hosts has an @ or %% in it: user and password stand once, before the first host, and special characters in them are written as %%XX")
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
	}
	if transport == "rediss" {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12} // each server under its own name
	}
	path := strings.Trim(u.Path, "/")
	if topology == "sentinel" {
		c.Master, path, _ = strings.Cut(path, "/")
		if c.Master == "" {
			return reason.Invalid("the URL does not say what the sentinels call the primary: redis+sentinel://host:26379/mymaster")
		}
	}
	return c.takeDB(path, u.Query())
}

func (c *Config) takeSettings(query string) error {
	// A plus is one, as before the host: passwords have them, and nothing here has a space.
	settings, err := url.ParseQuery(strings.ReplaceAll(query, "+", "%2B"))
	if err != nil {
		return reason.Invalid("the URL's query cannot be parsed")
	}
	durations := map[string]*time.Duration{
		"lease": &c.Lease, "margin": &c.Margin, "hand_over": &c.HandOver, "fair_wait": &c.FairWait, "command_timeout": &c.CommandTimeout,
		"dial_timeout": &c.DialTimeout, "close_timeout": &c.CloseTimeout, "ack_timeout": &c.AckTimeout,
	}
	numbers := map[string]*int{"db": &c.DB, "lanes": &c.Lanes}
	texts := map[string]*string{
		"client_name": &c.ClientName, "sentinel_username": &c.SentinelUsername,
		"sentinel_password": &c.SentinelPassword, "sharding": &c.Sharding,
	}
	known := slices.Concat([]string{"replicas"}, slices.Collect(maps.Keys(durations)), slices.Collect(maps.Keys(numbers)), slices.Collect(maps.Keys(texts)))
	slices.Sort(known)
	these := "these are: " + strings.Join(known, ", ")
	for name, values := range settings {
		value := values[len(values)-1]
		unknown := !slices.Contains(known, name)
		switch {
		case unknown && strings.Contains(strings.ToLower(query), "pass"):
			// Not quoted: with sentinel_password=a&b it is half of a password.
			return reason.Invalid("the URL has a setting that is not known; special characters in a password are written as %%XX (& as %%26); %s", these)
		case unknown:
			return reason.Invalid("the URL's setting %q is not known; %s", name, these)
		case len(values) > 1:
			return reason.Invalid("the URL gives %s %d times", name, len(values))
		case name == "replicas":
			n, ok := replicasOf(value)
			if !ok {
				return reason.Invalid("the URL's replicas (%q) must be all, majority, or a number up to %d", reason.Shorten(value), maxReplicas)
			}
			c.Replicas = n
		case texts[name] != nil:
			*texts[name] = value
		case durations[name] != nil:
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return reason.Invalid("the URL's %s (%q) must be a positive duration such as 500ms or 10s", name, value)
			}
			*durations[name] = d
		case numbers[name] != nil:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return reason.Invalid("the URL's %s (%q) must be a number", name, value)
			}
			*numbers[name] = n
		}
	}
	return nil
}
