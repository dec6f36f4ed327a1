package resp

import (
	"fmt"
	"log/slog"

	"github.com/pawl-lock/pawl/internal/redact"
)

// What these types show of themselves in logs, for every verb of fmt, in slog and as
// JSON: no password, and nothing that others write to at that moment.

// fields is the configuration without the texts of scripts, which would fill a page.
func (c Config) fields() []slog.Attr { return redact.Struct(c, "Scripts") }

// String returns the fields that are set, without passwords and scripts.
func (c Config) String() string { return redact.Text("Config", c.fields()) }

// Format implements fmt.Formatter: String, whatever the verb.
func (c Config) Format(f fmt.State, verb rune) { redact.Format(f, verb, c.String()) }

// LogValue implements slog.LogValuer: the fields that are set, without passwords.
func (c Config) LogValue() slog.Value { return slog.GroupValue(c.fields()...) }

// MarshalJSON implements json.Marshaler: the fields that are set, without passwords.
func (c Config) MarshalJSON() ([]byte, error) { return redact.JSON(c.fields()) }

// String says where the client connects to.
func (c *Client) String() string {
	if c == nil {
		return "Client(none)"
	}
	return "Client(" + c.cfg.where() + ")"
}

// Format implements fmt.Formatter: String, whatever the verb.
func (c *Client) Format(f fmt.State, verb rune) { redact.Format(f, verb, c.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (c *Client) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String returns the server's address and the number of the lane.
func (id LaneID) String() string {
	if id.node == nil {
		return "Lane(none)"
	}
	return fmt.Sprintf("Lane(%s %d)", id.node.cfg.Addr, id.index)
}

// Format implements fmt.Formatter: String, whatever the verb.
func (id LaneID) Format(f fmt.State, verb rune) { redact.Format(f, verb, id.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (id LaneID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }
