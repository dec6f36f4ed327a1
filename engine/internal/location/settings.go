package location

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Settings are what a URL's query may say, and where the values go. Parse also knows db.
type Settings struct {
	Durations map[string]*time.Duration // positive
	Numbers   map[string]*int           // not negative
	Texts     map[string]*string
	Switches  map[string]*string // on or off

	values map[string][]string
}

// aliases are names of other clients for settings, whose values mean the same.
var aliases = map[string]string{"database": "db", "virtualhost": "db", "clientname": "client_name", "servername": "tls_server_name", "sni": "tls_server_name"}

// renamed are former names of settings.
var renamed = map[string]string{"fairwait": "fair_wait_timeout", "handover": "hand_over_time", "sharding": "sharded_pubsub", "lanes": "command_conns"}

// known lists the names of all settings.
func (s *Settings) known() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(s.Durations)), slices.Collect(maps.Keys(s.Numbers)),
		slices.Collect(maps.Keys(s.Texts)), slices.Collect(maps.Keys(s.Switches)))))
}

// plainName is a name without what differs between clients: pool_size, poolSize, pool-size.
func plainName(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(name))
}

// takeSettings reads the query, with the path and what stands behind a #, which say the same in
// other words.
func (l *Location) takeSettings(s *Settings, u *url.URL, path string) error {
	// A plus is one, as before the host: passwords have them, and nothing here has a space.
	query, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	if err != nil {
		return lockerr.Invalid("the URL's query cannot be parsed")
	}
	s.Numbers["db"], s.values = &l.DB, make(map[string][]string)
	masters, hosts, err := l.sort(s, query)
	if err != nil {
		return err
	}
	if err := s.assign(); err != nil {
		return err
	}
	path = strings.Trim(path, "/")
	switch {
	case l.Topology == "sentinel":
		if path, err = l.takeMaster(path, append(masters, u.Fragment)); err != nil {
			return err
		}
	case u.Fragment != "":
		return lockerr.Invalid("the URL has a fragment (#): in a password, write it as %%23")
	}
	for _, h := range hosts {
		if err := l.addHost(h); err != nil {
			return err
		}
	}
	return l.takeDB(path, s.values["db"] != nil)
}

// sort tells the settings from what other clients have. Of what is wrong it reports everything.
// It returns the names of the primary, and further hosts, among them.
func (l *Location) sort(s *Settings, query url.Values) (masters, hosts []string, err error) {
	known := s.known()
	names := maps.Clone(aliases)
	for _, name := range known {
		names[plainName(name)] = name
	}
	var unknown, wrong []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values, plain := query[name], plainName(name)
		switch ours, is := names[plain]; {
		case is:
			s.values[ours] = append(s.values[ours], values...)
		case renamed[plain] != "":
			wrong = append(wrong, fmt.Sprintf("the setting %q is not known: it is called %s", name, renamed[plain]))
		case l.Topology == "sentinel" && slices.Contains(mastersNames, plain):
			masters = append(masters, values...)
		case l.Topology != "" && plain == "addr":
			hosts = append(hosts, values...)
		default:
			instead, theirs := l.foreign(plain, values[len(values)-1])
			switch {
			case !theirs:
				unknown = append(unknown, strconv.Quote(lockerr.Shorten(name)))
			case instead == "":
				l.Ignored = append(l.Ignored, name)
			default:
				wrong = append(wrong, fmt.Sprintf("%s is another client's: %s", name, instead))
			}
		}
	}
	these := "; these are: " + strings.Join(known, ", ")
	switch {
	case len(unknown) > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(query)), secret):
		// Not quoted: with sentinel_password=a&b it is half of a password.
		wrong = append(wrong, "a setting is not known; special characters in a password are written as %XX (& as %26)"+these)
	case len(unknown) == 1:
		wrong = append(wrong, "the setting "+unknown[0]+" is not known"+these)
	case len(unknown) > 1:
		wrong = append(wrong, "the settings "+strings.Join(unknown, ", ")+" are not known"+these)
	}
	if wrong != nil {
		return nil, nil, lockerr.Invalid("in the URL %s", strings.Join(wrong, "; "))
	}
	return masters, hosts, nil
}

// secret reports whether a setting may be a password.
func secret(name string) bool {
	return slices.ContainsFunc([]string{"pass", "pwd", "auth", "secret", "token", "key"}, func(word string) bool {
		return strings.Contains(strings.ToLower(name), word)
	})
}

// assign gives the settings their values.
func (s *Settings) assign() error {
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		values := s.values[name]
		value := values[0]
		switch {
		case len(values) > 1:
			return lockerr.Invalid("the URL gives %s %d times", name, len(values))
		case s.Texts[name] != nil:
			*s.Texts[name] = value
		case s.Switches[name] != nil:
			is, ok := onOrOff(value)
			if !ok {
				return lockerr.Invalid("the URL's %s (%q) must be on or off", name, lockerr.Shorten(value))
			}
			*s.Switches[name] = is
		case s.Durations[name] != nil:
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return lockerr.Invalid("the URL's %s (%q) must be a positive duration such as 500ms or 10s%s", name, lockerr.Shorten(value), withUnit(value))
			}
			*s.Durations[name] = d
		case s.Numbers[name] != nil:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return lockerr.Invalid("the URL's %s (%q) must be a number", name, lockerr.Shorten(value))
			}
			*s.Numbers[name] = n
		}
	}
	return nil
}

// withUnit says how to write a duration that lacks its unit. Some clients mean seconds by
// that, others milliseconds.
func withUnit(value string) string {
	switch n, err := strconv.ParseFloat(value, 64); {
	case err != nil:
		return ""
	case n <= 0:
		return ": leave it out for the default"
	}
	return fmt.Sprintf(": write %ss, or %sms", value, value)
}

// onOrOff reads a switch, in the words that clients have for it.
func onOrOff(value string) (is string, ok bool) {
	switch strings.ToLower(value) {
	case "on", "true", "yes", "1":
		return "on", true
	case "off", "false", "no", "0":
		return "off", true
	}
	return "", false
}
