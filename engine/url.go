package engine

import (
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ParseURL turns a URL into a Config:
//
//	redis://[user[:password]@]host[:port][/db]    port 6379 by default
//	rediss://...                                  the same over TLS
//	unix://[user[:password]@]/path/to/socket      ?db=N selects the database
//
// Settings may follow as a query: db, client_name, lease, margin,
// command_timeout, dial_timeout, close_timeout (durations such as 10s), lanes. A
// password that stands alone is the default user's: redis://:secret@host. Unknown
// settings are errors. Errors never contain the password.
func ParseURL(raw string) (Config, error) {
	u, err := url.Parse(raw)
	if err == nil && strings.Contains(u.Path+u.RawQuery+u.Fragment+u.Opaque, "@") && u.Scheme != "unix" {
		// redis://user:12/34@host: what we would quote as the path is half of a
		// password.
		return Config{}, invalid("the URL has an @ behind its host: special characters in a password are written as %%XX (/ as %%2F, ? as %%3F, # as %%23)")
	}
	if err != nil {
		// url.Error quotes the whole URL, the password included.
		return Config{}, invalid("the URL cannot be parsed: it must look like redis://user:password@host:6379/0 (special characters in a password are written as %%XX)")
	}
	var c Config
	switch u.Scheme {
	case "redis", "rediss":
		if err := c.takeHost(u); err != nil {
			return Config{}, err
		}
	case "unix":
		if u.Host != "" || u.Path == "" || u.Path[0] != '/' {
			return Config{}, invalid("a unix URL must hold an absolute path: unix:///run/redis.sock")
		}
		c.Addrs = []string{u.Path}
	case "":
		return Config{}, invalid("the URL has no scheme: it must begin with redis://, rediss:// or unix://")
	default:
		return Config{}, invalid("the URL's scheme %q is not one of redis, rediss, unix", u.Scheme)
	}
	if u.Fragment != "" {
		return Config{}, invalid("the URL has a fragment (#): in a password, write it as %%23")
	}
	if u.User != nil {
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
		if c.Username != "" && c.Password == "" {
			return Config{}, invalid("the URL names a user without a password: write redis://user:password@host, or redis://:password@host for the default user")
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
		return invalid("the URL names no host: redis://host:6379")
	}
	if port == "" {
		port = "6379"
	}
	c.Addrs = []string{net.JoinHostPort(host, port)}
	if u.Scheme == "rediss" {
		c.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		db, err := strconv.Atoi(path)
		if err != nil || db < 0 {
			return invalid("the URL's path (%q) must be a database number", shorten(path))
		}
		c.DB = db
	}
	return nil
}

func (c *Config) takeSettings(query string) error {
	settings, err := url.ParseQuery(query)
	if err != nil {
		return invalid("the URL's query cannot be parsed")
	}
	durations := map[string]*time.Duration{
		"lease": &c.Lease, "margin": &c.Margin, "command_timeout": &c.CommandTimeout,
		"dial_timeout": &c.DialTimeout, "close_timeout": &c.CloseTimeout,
	}
	numbers := map[string]*int{"db": &c.DB, "lanes": &c.Lanes}
	if settings.Has("db") && c.DB != 0 {
		return invalid("the URL names the database twice: in its path and as db")
	}
	for name, values := range settings {
		value := values[len(values)-1]
		switch {
		case len(values) > 1:
			return invalid("the URL gives %s %d times", name, len(values))
		case name == "client_name":
			c.ClientName = value
		case durations[name] != nil:
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return invalid("the URL's %s (%q) must be a positive duration such as 500ms or 10s", name, value)
			}
			*durations[name] = d
		case numbers[name] != nil:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return invalid("the URL's %s (%q) must be a number", name, value)
			}
			*numbers[name] = n
		default:
			return invalid("the URL's setting %q is not known; these are: db, client_name, lease, margin, command_timeout, dial_timeout, close_timeout, lanes", name)
		}
	}
	return nil
}
