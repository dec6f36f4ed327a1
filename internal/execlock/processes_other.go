//go:build unix && !linux

package execlock

// process is what is known of one.
type process struct{ group int }

func (process) zombie() bool { return false }

func (process) stopped() bool { return false }

// members knows nothing: no other system than Linux has a /proc that every process
// may read.
func members(int) (all []process, known bool) { return nil, false }

func (*group) adopt() {}

// others are not known either.
func (*group) others() []process { return nil }

// isOurs reports whether a group has a process that descends from this one, as far as
// that is known.
func isOurs(int) bool { return false }
