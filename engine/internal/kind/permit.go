package kind

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// permit is Redisson's RPermitExpirableSemaphore: a number of permits, each held under an id, for
// a lease. A grant is one or more of them, which are taken together, renewed and given back. It is
// not re-entered, nor kept for a MinHold.
var permit = row{
	name:    "permit",
	channel: script.PermitChannel,
	family:  Permits,
	traits:  lock.Traits{Entries: lock.PerGrant, Noun: "semaphore"},
	wire: wire{
		take:    script.AppendPermitTake,
		release: script.AppendPermitRelease,
		renewal: RenewsPermits,
	},
}
