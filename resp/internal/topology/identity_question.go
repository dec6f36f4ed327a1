package topology

import (
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/reply"
	"github.com/pawl-lock/pawl/resp/wire"
)

// IdentityQuestion is the command that asks a server of a deployment of kind k who it is. A node
// of a cluster has an id of its own, which it keeps when it restarts. Elsewhere the data has one,
// the replication ID, which a primary shares with its replicas: see standing. Run ids change at
// each restart, and decide nothing.
func IdentityQuestion(k Kind) []string {
	if k == Cluster {
		return []string{"CLUSTER", "MYID"}
	}
	return []string{"INFO", "replication"}
}

// ReadIdentity returns the ids in the answer to IdentityQuestion; none if the server does not
// say who it is: it refuses the question, or is of another make.
func ReadIdentity(k Kind, v wire.Value) []string {
	switch {
	case v.Kind != wire.KindBulk || len(v.Bytes) == 0:
		return nil
	case k == Cluster:
		return []string{string(v.Bytes)}
	}
	return replicationIDs(infoFields(string(v.Bytes)))
}

// infoFields reads the answer to INFO.
func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// replicationIDs are those of a server's data: its own, and the one that it continues, if any.
func replicationIDs(fields map[string]string) (ids []string) {
	for _, name := range []string{"master_replid", "master_replid2"} {
		if id := fields[name]; strings.Trim(id, "0") != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// nodeIDs are those of the primaries and replicas in an answer to CLUSTER SLOTS.
func nodeIDs(slots wire.Value) (ids []string) {
	for _, entry := range reply.Elements(slots) {
		e := reply.Elements(entry)
		for _, node := range e[min(2, len(e)):] {
			if fields := reply.Elements(node); len(fields) > 2 && len(fields[2].Bytes) > 0 {
				ids = append(ids, string(fields[2].Bytes))
			}
		}
	}
	return unique(ids)
}
