package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestParseReplicationInfo_PrimaryAndReplica_AreRead(t *testing.T) {
	t.Parallel()
	const id, before = "8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb", "66746c5301cb6e42c589d02885db4ef9a3bb1606"
	info := "# Replication\r\nrole:master\r\nconnected_slaves:5\r\n" +
		"slave0:ip=10.0.0.2,port=6379,state=online,offset=28,lag=0,type=replica\r\n" +
		"slave1:ip=fe80::1,port=6380,state=online,offset=28,lag=2\r\n" +
		"slave2:ip=10.0.0.4,port=6379,state=online,offset=28,lag=3\r\n" +
		"slave3:ip=10.0.0.5,port=6379,state=wait_bgsave,offset=0,lag=0\r\n" +
		"slave4:ip=,port=0,state=online,offset=28,lag=1\r\n" +
		"slaves:ip=10.0.0.9,port=1,state=online,lag=0\r\n" +
		"master_replid:" + id + "\r\nmaster_replid2:" + before + "\r\nmaster_repl_offset:28\r\n"
	s := parseReplicationInfo(&Config{}, "a:1", info)
	if !s.primary || s.id != id || s.previousID != before || s.attached != 3 || s.linked || s.demoted() ||
		!slices.Equal(s.replicas, []string{"10.0.0.2:6379", "[fe80::1]:6380", "10.0.0.4:6379", "10.0.0.5:6379"}) {
		t.Errorf("%+v", s)
	}
	for silent, linked := range map[int]bool{0: true, 15: true, 16: false, -1: false} {
		status := "up"
		if silent < 0 {
			status = "down"
		}
		s = parseReplicationInfo(&Config{}, "b:1", fmt.Sprintf("role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\nmaster_link_status:%s\r\n"+
			"master_last_io_seconds_ago:%d\r\nslave0:ip=10.0.0.2,port=1,state=online,lag=0\r\nmaster_replid:%s\r\nmaster_replid2:%040d\r\n", status, silent, id, 0))
		if s.primary || !s.demoted() || s.linked != linked || s.primaryAddr != "10.0.0.1:6379" || s.id != id || s.previousID != "" || s.attached != 0 {
			t.Errorf("silent for %d s: %+v", silent, s)
		}
	}
}

// What the decision rests on, of each server that people run: a replica has the ID of its
// primary, and when it is promoted it begins a new one and remembers that.
func TestReplicationInfo_Promoted_KeepsThePreviousID(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	a, b := r.Servers()[0], r.Servers()[1]
	stand := func(s *redistest.Server) replicationInfo {
		info, _ := s.Do("INFO", "replication").(string)
		return parseReplicationInfo(&Config{}, s.Addr(), info)
	}
	var first replicationInfo
	linked := func() bool {
		first = stand(a)
		return first.primary && first.attached == 1 && slices.Contains(first.replicas, b.Addr()) && stand(b).linked
	}
	for start := cputime.Now(); !linked(); time.Sleep(10 * time.Millisecond) {
		if start.Elapsed() > 30*time.Second {
			t.Fatalf("the replica is not linked and listed: %+v, %+v", first, stand(b))
		}
	}
	if got := stand(b); got.id != first.id || got.primaryAddr != a.Addr() {
		t.Errorf("the replica: %+v, of %+v", got, first)
	}
	b.Do("REPLICAOF", "NO", "ONE")
	if got := stand(b); !got.primary || got.id == first.id || got.previousID != first.id {
		t.Errorf("when it is promoted: %+v, and was %+v", got, first)
	}
}

// FuzzReplicationInfo: whatever a server says, a few addresses are known, and no socket.
func FuzzReplicationInfo(f *testing.F) {
	f.Add("role:master\r\nslave0:ip=10.0.0.2,port=6379,state=online,lag=0\r\nmaster_replid:a\r\n")
	f.Add("role:slave\nmaster_host:/tmp/x\nmaster_port:1\nmaster_link_status:up\nmaster_last_io_seconds_ago:1\n")
	f.Add("slave9:ip=,port=,state=online,lag=-1\nslave:\n:\nmaster_replid2:000")
	f.Fuzz(func(t *testing.T, info string) {
		s := parseReplicationInfo(&Config{}, "a:1", info)
		for _, addr := range append(s.replicas, s.primaryAddr) {
			if NetworkOf(addr) == "unix" && addr != "" {
				t.Fatalf("%q is to be dialled", addr)
			}
		}
		if len(s.replicas) > MaxAnnounced || s.id == "" && (s.primary || s.linked) || s.primary && s.linked || strings.Trim(s.previousID, "0") == "" && s.previousID != "" {
			t.Fatalf("%+v", s)
		}
	})
}
