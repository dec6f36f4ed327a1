package topology

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

const (
	// ackedWithin is for how long after its last acknowledgement a replica on a primary's
	// list counts as attached: seconds of the server's clock, so it may be one more. They
	// come every second. A primary that comes back from a partition still lists the replicas
	// that have left it.
	ackedWithin = 2 * time.Second
	// linkedWithin is for how long after the last byte from its primary a replica counts
	// as linked. A primary sends one every ten seconds at least.
	linkedWithin = 15 * time.Second
)

// replicationInfo is what a server says of its part in replication: INFO replication.
//
// Redis numbers histories, not servers. A primary has a replication ID of its own, and its
// replicas have that, too. A replica that is promoted begins a new one, and remembers the
// one that it continues. So the IDs tell which answers are of one server under two names,
// who follows whom behind NAT, who was promoted from whose data, and who belongs to another deployment.
// https://redis.io/docs/latest/operate/oss_and_stack/management/replication/
type replicationInfo struct {
	addr           string
	err            error
	silent         bool          // it has not answered, or not yet: it may be the primary
	connectedSince clock.Instant // since when the connection has existed that the answer came over

	id, previousID string   // the replication ID, and the one that it continues or ""; "" of a replica of another make
	primary        bool     // else a replica
	attached       int      // to a primary: the replicas that acknowledged lately
	replicas       []string // the addresses of all that it lists, a few at most
	linked         bool     // a replica that has had data of its primary lately, and says by id whose
	primaryAddr    string   // the address of a replica's primary, or "" if it cannot be dialled
}

// ids are those of a server's data: see Identity.
func (s *replicationInfo) ids() (ids []string) {
	for _, id := range []string{s.id, s.previousID} {
		if id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// demoted reports whether a server has said that it is a replica.
func (s *replicationInfo) demoted() bool { return s.addr != "" && s.err == nil && !s.primary }

// refuses reports whether a server is there, and answers with an error.
func (s *replicationInfo) refuses() bool { return errors.As(s.err, new(*wire.ServerError)) }

// parseReplicationInfo reads INFO replication of the server at addr.
func parseReplicationInfo(c *Config, addr, info string) replicationInfo {
	s := replicationInfo{addr: addr}
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if !ok {
			continue
		}
		fields[name] = value
		if number, is := strings.CutPrefix(name, "slave"); is && number != "" && strings.Trim(number, "0123456789") == "" {
			s.attach(c, value)
		}
	}
	s.id, s.previousID = fields["master_replid"], fields["master_replid2"]
	if strings.Trim(s.previousID, "0") == "" {
		s.previousID = ""
	}
	if s.primary = fields["role"] == "master"; s.primary {
		if s.id == "" {
			s.id = addr // a server of another make: known by its address alone
		}
		return s
	}
	s.attached, s.replicas = 0, nil // those chained to a replica count at the primary's word
	silent, err := strconv.Atoi(fields["master_last_io_seconds_ago"])
	s.linked = s.id != "" && fields["master_link_status"] == "up" && err == nil && silent <= int(linkedWithin/time.Second)
	s.primaryAddr, _ = c.announced(fields["master_host"], fields["master_port"], addr)
	return s
}

// attach reads a line about one replica: ip=10.0.0.2,port=6379,state=online,offset=28,lag=0.
func (s *replicationInfo) attach(c *Config, line string) {
	fields := make(map[string]string)
	for pair := range strings.SplitSeq(line, ",") {
		name, value, _ := strings.Cut(pair, "=")
		fields[name] = value
	}
	lag, err := strconv.Atoi(fields["lag"])
	if fields["state"] == "online" && err == nil && lag <= int(ackedWithin/time.Second) {
		s.attached++
	}
	if len(s.replicas) < MaxAnnounced {
		if addr, err := c.announced(fields["ip"], fields["port"], ""); err == nil {
			s.replicas = append(s.replicas, addr)
		}
	}
}
