package kind

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
)

// The two halves of Redisson's RReadWriteLock. Many may read, so readers are apart from each
// other, or have one lock together; the writers of a process queue as for a Mutex.

var read = row{
	name:    "read",
	channel: rwChannel,
	family:  RW,
	traits:  lock.Traits{Entries: lock.PerReader, LocalHandOver: true},
	alone:   true,
	wire: wire{
		acquire: func(dst []byte, form resp.ScriptForm, key string, o script.Owner, lease time.Duration) []byte {
			return script.AppendReadAcquire(dst, form, key, o, lease, script.Owner{})
		},
		beside:  script.AppendReadAcquire,
		reenter: script.AppendReadReenter,
		leave:   script.AppendReadLeave,
		release: script.AppendReadRelease,
		force:   script.AppendReadForce,
		renewal: RenewsReaders,
	},
}

var write = row{
	name:    "write",
	channel: rwChannel,
	family:  RW,
	traits:  lock.Traits{LocalHandOver: true},
	suffix:  script.WriterSuffix,
	alone:   true,
	wire:    writeWire(),
}

const rwChannel = "redisson_rwlock"

func writeWire() wire {
	w := hash
	w.acquire = script.AppendWriteAcquire
	w.release = script.AppendWriteRelease
	w.retire = script.AppendWriteRetire
	w.force = script.AppendWriteForce
	return w
}
