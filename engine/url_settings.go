package engine

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// settings are what a URL's query may say. A name that other clients have for one of them is
// an alias.
type settings struct {
	durations map[string]*time.Duration
	numbers   map[string]*int
	texts     map[string]*string
	switches  map[string]*string // on or off
	values    map[string][]string
}

// aliases are names of other clients for settings, whose values mean the same.
var aliases = map[string]string{"database": "db", "virtualhost": "db", "clientname": "client_name", "servername": "tls_server_name", "sni": "tls_server_name"}

func (c *Config) settings(serverName, sentinelTLS, replicas *string) *settings {
	return &settings{
		durations: map[string]*time.Duration{
			"lease": &c.Lease, "margin": &c.Margin, "hand_over": &c.HandOver, "fair_wait": &c.FairWait, "command_timeout": &c.CommandTimeout,
			"dial_timeout": &c.DialTimeout, "close_timeout": &c.CloseTimeout, "ack_timeout": &c.AckTimeout,
		},
		numbers: map[string]*int{"db": &c.DB, "lanes": &c.Lanes},
		texts: map[string]*string{
			"client_name": &c.ClientName, "sentinel_username": &c.SentinelUsername, "sentinel_password": &c.SentinelPassword,
			"sharding": &c.Sharding, "tls_server_name": serverName, "replicas": replicas,
		},
		switches: map[string]*string{"sentinel_tls": sentinelTLS},
		values:   make(map[string][]string),
	}
}

// known lists the names of all settings.
func (s *settings) known() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(s.durations)), slices.Collect(maps.Keys(s.numbers)),
		slices.Collect(maps.Keys(s.texts)), slices.Collect(maps.Keys(s.switches)))))
}

// plainName is a name without what differs between clients: pool_size, poolSize, pool-size.
func plainName(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(name))
}

// takeSettings reads the query, with the path and what stands behind a #, which say the same in
// other words.
func (c *Config) takeSettings(u *url.URL, path string) error {
	// A plus is one, as before the host: passwords have them, and nothing here has a space.
	query, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	if err != nil {
		return reason.Invalid("the URL's query cannot be parsed")
	}
	var serverName, sentinelTLS, replicas string
	s := c.settings(&serverName, &sentinelTLS, &replicas)
	masters, hosts, err := c.sort(s, query)
	if err != nil {
		return err
	}
	if err := s.assign(); err != nil {
		return err
	}
	path = strings.Trim(path, "/")
	switch {
	case c.Topology == "sentinel":
		if path, err = c.takeMaster(path, append(masters, u.Fragment)); err != nil {
			return err
		}
	case u.Fragment != "":
		return reason.Invalid("the URL has a fragment (#): in a password, write it as %%23")
	}
	for _, h := range hosts {
		if err := c.addHost(h); err != nil {
			return err
		}
	}
	if err := c.takeDB(path, s.values["db"] != nil); err != nil {
		return err
	}
	if s.values["replicas"] != nil {
		n, ok := replicasOf(replicas)
		if !ok {
			return reason.Invalid("the URL's replicas (%q) must be all, majority, or a number up to %d", reason.Shorten(replicas), maxReplicas)
		}
		c.Replicas = n
	}
	return c.takeTLS(serverName, sentinelTLS)
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

// sort tells the settings from what other clients have. Of what is wrong it reports everything.
// It returns the names of the primary, and further hosts, among them.
func (c *Config) sort(s *settings, query url.Values) (masters, hosts []string, err error) {
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
		case c.Topology == "sentinel" && slices.Contains(mastersNames, plain):
			masters = append(masters, values...)
		case c.Topology != "" && plain == "addr":
			hosts = append(hosts, values...)
		default:
			instead, theirs := c.foreign(plain, values[len(values)-1])
			switch {
			case !theirs:
				unknown = append(unknown, strconv.Quote(reason.Shorten(name)))
			case instead == "":
				c.ignored = append(c.ignored, name)
			default:
				wrong = append(wrong, fmt.Sprintf("%s is another client's: %s", name, instead))
			}
		}
	}
	these := "; these are: " + strings.Join(known, ", ")
	switch {
	case len(unknown) > 0 && strings.Contains(strings.ToLower(strings.Join(slices.Collect(maps.Keys(query)), " ")), "pass"):
		// Not quoted: with sentinel_password=a&b it is half of a password.
		wrong = append(wrong, "a setting is not known; special characters in a password are written as %XX (& as %26)"+these)
	case len(unknown) == 1:
		wrong = append(wrong, "the setting "+unknown[0]+" is not known"+these)
	case len(unknown) > 1:
		wrong = append(wrong, "the settings "+strings.Join(unknown, ", ")+" are not known"+these)
	}
	if wrong != nil {
		return nil, nil, reason.Invalid("in the URL %s", strings.Join(wrong, "; "))
	}
	return masters, hosts, nil
}

// assign gives the settings their values.
func (s *settings) assign() error {
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		values := s.values[name]
		value := values[0]
		switch {
		case len(values) > 1:
			return reason.Invalid("the URL gives %s %d times", name, len(values))
		case s.texts[name] != nil:
			*s.texts[name] = value
		case s.switches[name] != nil:
			is, ok := onOrOff(value)
			if !ok {
				return reason.Invalid("the URL's %s (%q) must be on or off", name, reason.Shorten(value))
			}
			*s.switches[name] = is
		case s.durations[name] != nil:
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return reason.Invalid("the URL's %s (%q) must be a positive duration such as 500ms or 10s%s", name, reason.Shorten(value), withUnit(value))
			}
			*s.durations[name] = d
		case s.numbers[name] != nil:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return reason.Invalid("the URL's %s (%q) must be a number", name, reason.Shorten(value))
			}
			*s.numbers[name] = n
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
