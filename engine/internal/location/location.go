package location

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/pasted"
)

// Location is what a URL says beside the settings.
type Location struct {
	Topology string // as in engine.Config; "" for one server
	Addrs    []string
	Master   string
	DB       int
	TLS      bool
	Host     string // of one server

	Username, Password string
	// NoPassword: the user needs none.
	NoPassword bool
	// Ignored are settings of other clients that make no difference.
	Ignored []string
}

// Parse reads a URL, and gives the settings their values. Errors never contain the password.
func Parse(raw string, s *Settings) (*Location, error) {
	raw, scheme := canonical(pasted.Text(raw))
	if scheme.path == nil && !strings.Contains(raw, "://") {
		return nil, lockerr.Invalid("the URL has no scheme: write redis://HOST:PORT, rediss://HOST:PORT for TLS, unix:///PATH, redis+cluster://HOST,HOST or redis+sentinel://HOST,HOST/MASTER")
	}
	raw, hosts := splitHosts(raw)
	if scheme, yes := plainList(raw); yes {
		return nil, lockerr.Invalid("the URL names several addresses, and %s:// takes one: say what they are together, with redis+cluster://, redis+sentinel:// or redis+replicas:// (rediss+... over TLS)", scheme)
	}
	u, err := url.Parse(raw)
	if err == nil && strings.Contains(u.Path+u.RawQuery+u.Fragment+u.Opaque, "@") && u.Scheme != "unix" {
		// redis://user:12/34@host: what we would quote as the path is half of a
		// password.
		return nil, lockerr.Invalid("the URL has an @ behind its host: special characters in a password are written as %%XX (/ as %%2F, ? as %%3F, # as %%23)")
	}
	if err != nil {
		// url.Error quotes the whole URL, the password included.
		return nil, lockerr.Invalid("the URL cannot be parsed: it must look like redis://user:password@host:6379/0 (special characters in a password are written as %%XX)%s", oddities(raw))
	}
	if scheme.path == nil {
		return nil, lockerr.Invalid("the URL's scheme %q is not known: %s", u.Scheme, otherScheme(u.Scheme))
	}
	l := &Location{TLS: scheme.tls}
	if err := l.takeUser(u.User); err != nil {
		return nil, err
	}
	path, err := scheme.path(l, u, hosts)
	if err != nil {
		return nil, err
	}
	return l, l.takeSettings(s, u, path)
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
func (l *Location) takeUser(user *url.Userinfo) error {
	if user == nil {
		return nil
	}
	name := user.Username()
	password, given := user.Password()
	switch {
	case name == "default" || name == "":
		l.Password = password
	case password != "":
		l.Username, l.Password = name, password
	case given:
		l.Username, l.NoPassword = name, true
	default:
		return lockerr.Invalid("the URL names a user without a password: write redis://user:password@host, redis://:password@host for the default user, or redis://user:@host for a user that needs no password")
	}
	return nil
}

// takeHost reads the address of one server.
func (l *Location) takeHost(u *url.URL, _ []string) (path string, err error) {
	host, port := u.Hostname(), cmp.Or(u.Port(), "6379")
	if host == "" {
		return "", lockerr.Invalid("the URL names no host: redis://host:6379")
	}
	if strings.Count(u.Host, ":") > 1 && u.Host[0] != '[' {
		return "", lockerr.Invalid("the URL's host has more than one colon: an IPv6 address is written in brackets, redis://[::1]:6379")
	}
	l.Host, l.Addrs = host, []string{net.JoinHostPort(host, port)}
	return u.Path, nil
}

// takeSocket reads the path of a unix socket.
func (l *Location) takeSocket(u *url.URL, _ []string) (path string, err error) {
	if u.Host != "" || u.Path == "" || u.Path[0] != '/' {
		return "", lockerr.Invalid("a unix URL must hold an absolute path: unix:///run/redis.sock")
	}
	l.Addrs = []string{u.Path}
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
func splitHosts(raw string) (rest string, hosts []string) {
	scheme, user, list, tail := authority(raw)
	if !strings.Contains(scheme, "+") || list == "" {
		return raw, nil
	}
	if user != "" {
		name, _, _ := strings.Cut(user, ":")
		if strings.Contains(user[:len(user)-1], "@") || strings.Contains(name, ",") {
			list = "@" // refused by takeHosts
		}
	}
	return scheme + "://" + user + "hosts" + tail, strings.Split(list, ",")
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
func (l *Location) takeHosts(u *url.URL, hosts []string) (path string, err error) {
	if hosts == nil {
		return "", lockerr.Invalid("the URL names no host: redis+cluster://host:6379,host:6379")
	}
	_, l.Topology, _ = strings.Cut(u.Scheme, "+")
	for _, h := range hosts {
		if err := l.addHost(h); err != nil {
			return "", err
		}
	}
	return u.Path, nil
}

// addHost adds one of several addresses.
func (l *Location) addHost(h string) error {
	h = strings.TrimSpace(h)
	port := "6379"
	if l.Topology == "sentinel" {
		port = "26379"
	}
	bare, _, zoned := strings.Cut(h, "%")
	switch {
	case h == "":
		return lockerr.Invalid("the URL has an empty host in its list")
	case strings.Contains(h, "@"), zoned && !strings.HasPrefix(bare, "["):
		return lockerr.Invalid("the URL's list of hosts has an @ or %% in it: user and password stand once, before the first host, and special characters in them are written as %%XX")
	case zoned: // of an IPv6 address: [fe80::1%25eth0]
		h = strings.Replace(h, "%25", "%", 1)
	}
	switch {
	case strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]"):
		h = net.JoinHostPort(h[1:len(h)-1], port)
	case !strings.Contains(h, ":"):
		h = net.JoinHostPort(h, port)
	}
	if !ValidAddr(h) || h[0] == '/' {
		// Not quoted: it may be half of a password.
		return lockerr.Invalid("each host of the URL's list must be host:port")
	}
	l.Addrs = append(l.Addrs, h)
	return nil
}

// takeMaster reads the sentinels' name for the primary, and leaves the database of the path.
// Lettuce writes the name behind a #, others as a setting.
func (l *Location) takeMaster(path string, names []string) (db string, err error) {
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		l.Master, path, _ = strings.Cut(path, "/")
		if l.Master == "" {
			return "", lockerr.Invalid("the URL does not say what the sentinels call the primary: redis+sentinel://host:26379/mymaster")
		}
		return path, nil
	}
	if l.Master = names[0]; slices.ContainsFunc(names, func(name string) bool { return name != l.Master }) {
		return "", lockerr.Invalid("the URL names the primary twice: redis+sentinel://host:26379/mymaster")
	}
	if first, rest, _ := strings.Cut(path, "/"); first == l.Master {
		return rest, nil
	}
	return path, nil
}

// takeDB reads the database of the path.
func (l *Location) takeDB(path string, named bool) error {
	if path == "" {
		return nil
	}
	if named { // also if they agree, or say 0
		return lockerr.Invalid("the URL names the database twice: in its path and as db")
	}
	db, err := strconv.Atoi(path)
	if err != nil || db < 0 {
		return lockerr.Invalid("the URL's path (%q) must be a database number; a prefix of all names belongs into Config.NameMapper", lockerr.Shorten(path))
	}
	l.DB = db
	return nil
}

// ValidAddr reports whether an address is host:port or the path of a socket.
func ValidAddr(addr string) bool {
	if len(addr) > 0 && addr[0] == '/' {
		return true
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil && host != "" && !strings.Contains(host, ",")
}
