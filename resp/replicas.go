package resp

import (
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// ungrouped is the group of a server where nobody keeps a list.
var ungrouped topology.Group

// group returns that of the server at an address. It makes no garbage: each group of durable
// requests asks for it.
func (c *Client) group(addr string) (*topology.Group, error) {
	if c.explorer == nil {
		return &ungrouped, nil
	}
	gs := c.groups.Load()
	if gs == nil {
		return nil, request.ErrNotCounted
	}
	return gs.At(addr)
}

// counted reports whether the deployment has been asked for its groups. If not, it is
// asked from now on: not before, since the user needs a right for that.
func (c *Client) counted() bool {
	if c.explorer == nil || c.groups.Load() != nil {
		return true
	}
	if !c.counting.Swap(true) {
		c.explorer.RefreshNow("")
	}
	return false
}

// count notes what a look has found.
func (c *Client) count(found *topology.Groups) {
	c.groups.Store(latest(c.groups.Load(), found))
}

// latest is what is known after a look has found something of the groups; nil if it did not
// ask. What was known stands if nobody answers: "all" must not mean less because a sentinel is
// busy. But a refusal that will stay is returned.
func latest(known, found *topology.Groups) *topology.Groups {
	if found == nil || known != nil && known.Err == nil && found.Err != nil && !handshake.Lasting(found.Err) {
		return known
	}
	return found
}

// uncounted reports whether the groups are not known, and may be soon.
func (c *Client) uncounted() bool {
	gs := c.groups.Load()
	return gs != nil && gs.Err != nil && !handshake.Lasting(gs.Err)
}
