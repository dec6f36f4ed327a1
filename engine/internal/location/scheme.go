package location

import (
	"net/url"
	"strings"
)

// scheme is what the beginning of a URL says.
type scheme struct {
	tls bool
	// path reads what follows, up to the settings, and returns the path; nil: it is not known.
	path func(l *Location, u *url.URL, hosts []string) (string, error)
}

// canonical returns the URL with the scheme that it is known by here: redis, rediss or unix, with
// the topology behind a plus. Others write it behind a dash, call the product Valkey, or what
// carries the bytes a socket.
func canonical(raw string) (string, scheme) {
	name, rest, ok := strings.Cut(raw, ":")
	if !ok {
		return raw, scheme{}
	}
	name = strings.ToLower(name)
	base, topology, _ := strings.Cut(strings.Replace(name, "-", "+", 1), "+")
	s := scheme{path: (*Location).takeHost}
	switch base {
	case "redis", "valkey":
		base = "redis"
	case "rediss", "valkeys":
		base, s.tls = "rediss", true
	case "unix":
		s.path = (*Location).takeSocket
	default:
		return raw, scheme{}
	}
	switch topology {
	case "", "tcp":
	case "cluster", "sentinel", "replicas":
		s.path = (*Location).takeHosts
		base += "+" + topology
	case "tls", "ssl":
		base, s.tls = "rediss", true
	case "unix", "socket":
		if base != "redis" {
			return raw, scheme{}
		}
		base, s.path = "unix", (*Location).takeSocket
	default:
		return raw, scheme{}
	}
	return base + ":" + unescapedZone(rest), s
}

// unescapedZone escapes the percent sign before the zone of an IPv6 address, if it is not: a
// URL proper has [fe80::1%25eth0].
func unescapedZone(rest string) string {
	_, user, hosts, tail := authority(":" + rest)
	i := strings.IndexByte(hosts, '%')
	if !strings.HasPrefix(rest, "//") || !strings.HasPrefix(hosts, "[") || strings.Contains(hosts, ",") || i < 0 || strings.HasPrefix(hosts[i:], "%25") {
		return rest
	}
	return "//" + user + hosts[:i] + "%25" + hosts[i+1:] + tail
}

// otherScheme says what to write instead of a scheme that is not known.
func otherScheme(name string) string {
	has := func(word string) bool { return strings.Contains(name, word) }
	switch {
	case has("srv"):
		return "SRV records are not looked up; name some hosts, as in redis+cluster://HOST:PORT,HOST:PORT"
	case has("sentinel"):
		return "write redis+sentinel://HOST:26379,HOST:26379/MASTER"
	case has("cluster"):
		return "write redis+cluster://HOST:PORT,HOST:PORT (rediss+cluster:// for TLS)"
	case has("unix"), has("sock"), has("file"):
		return "write unix:///PATH"
	case has("tls"), has("ssl"), has("https"):
		return "write rediss://HOST:PORT"
	}
	return "write redis://HOST:PORT, or rediss://HOST:PORT for TLS; a topology follows a plus: redis+cluster, redis+sentinel, redis+replicas"
}
