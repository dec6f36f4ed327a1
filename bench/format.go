package bench

import (
	"fmt"
	"log/slog"

	"github.com/pawl-lock/pawl/internal/redact"
)

// What has a URL shows no password in it, for every verb of fmt, in slog and as JSON.

// String returns the fields that are set, without the password in URL.
func (c Config) String() string { return redact.Text("Config", redact.Struct(c)) }

// Format implements fmt.Formatter: String, whatever the verb.
func (c Config) Format(f fmt.State, verb rune) { redact.Format(f, verb, c.String()) }

// LogValue implements slog.LogValuer: the fields that are set, without the password.
func (c Config) LogValue() slog.Value { return slog.GroupValue(redact.Struct(c)...) }

// MarshalJSON implements json.Marshaler: the fields that are set, without the password.
func (c Config) MarshalJSON() ([]byte, error) { return redact.JSON(redact.Struct(c)) }

// String returns the server's URL without its password.
func (s *Server) String() string {
	if s == nil {
		return "Server(none)"
	}
	return "Server(" + redact.Addr(s.url) + ")"
}

// Format implements fmt.Formatter: String, whatever the verb.
func (s *Server) Format(f fmt.State, verb rune) { redact.Format(f, verb, s.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (s *Server) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
