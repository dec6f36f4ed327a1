//go:build !pawl_invariants

package invariants

// Enabled says whether this build checks invariants.
const Enabled = false
