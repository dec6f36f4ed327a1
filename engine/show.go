package engine

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/redact"
)

// What the types of this package show of themselves in logs: for every verb of fmt, in
// slog, as JSON. Left alone, these would print what is inside: passwords, and state that
// others write to at that moment. Printing takes no lock and waits for nobody.
//
// fmt cannot ask a value that lies in an unexported field; it prints the fields
// of that value, or the address if it is a pointer. So a Mutex and a Hold keep what they
// lead to behind two pointers, where fmt stops, and an Engine keeps no password in a
// field.

// String names the engine and its servers.
func (e *Engine) String() string {
	if e == nil || e.table.ID == "" {
		return "Engine(none)"
	}
	return "Engine(" + e.table.ID + " at " + e.cfg.Topology + " " + strings.Join(e.cfg.Addrs, ",") + ")"
}

// Format implements fmt.Formatter: String, whatever the verb.
func (e *Engine) Format(f fmt.State, verb rune) { redact.Format(f, verb, e.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (e *Engine) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// String returns the name: Mutex("orders:42").
func (m Mutex) String() string { return fmt.Sprintf("Mutex(%q)", reason.Shorten(m.name)) }

// Format implements fmt.Formatter: String, whatever the verb.
func (m Mutex) Format(f fmt.State, verb rune) { redact.Format(f, verb, m.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (m Mutex) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns the name: SpinMutex("orders:42").
func (m SpinMutex) String() string { return "Spin" + m.Mutex.String() }

// Format implements fmt.Formatter: String, whatever the verb.
func (m SpinMutex) Format(f fmt.State, verb rune) { redact.Format(f, verb, m.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (m SpinMutex) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns the name: FairMutex("orders:42").
func (m FairMutex) String() string { return "Fair" + m.Mutex.String() }

// Format implements fmt.Formatter: String, whatever the verb.
func (m FairMutex) Format(f fmt.State, verb rune) { redact.Format(f, verb, m.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (m FairMutex) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns the name: RWMutex("orders:42").
func (l RWMutex) String() string { return "RW" + l.writer.String() }

// Format implements fmt.Formatter: String, whatever the verb.
func (l RWMutex) Format(f fmt.State, verb rune) { redact.Format(f, verb, l.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (l RWMutex) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns the name: FencedMutex("orders:42").
func (m FencedMutex) String() string { return "Fenced" + m.Mutex.String() }

// Format implements fmt.Formatter: String, whatever the verb.
func (m FencedMutex) Format(f fmt.State, verb rune) { redact.Format(f, verb, m.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (m FencedMutex) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns the lock's name and owner. It does not say whether the lock is still
// held.
func (l *FencedHold) String() string {
	if l == nil || l.Hold == nil {
		return "FencedHold(none)"
	}
	return "Fenced" + l.Hold.String()
}

// Format implements fmt.Formatter: String, whatever the verb.
func (l *FencedHold) Format(f fmt.State, verb rune) { redact.Format(f, verb, l.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (l *FencedHold) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns the lock's name and owner. It does not say whether the lock is still
// held.
func (l *Hold) String() string {
	if l == nil || l.h == nil {
		return "Hold(none)"
	}
	return fmt.Sprintf("Hold(%q of %v)", reason.Shorten(l.h.Name), l.h.Owner())
}

// Format implements fmt.Formatter: String, whatever the verb.
func (l *Hold) Format(f fmt.State, verb rune) { redact.Format(f, verb, l.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (l *Hold) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns the names: MultiLock("a", "b").
func (l MultiLock) String() string {
	if l.all == nil {
		return "MultiLock(none)"
	}
	return "MultiLock(" + namesOf(l.all.locks) + ")"
}

// Format implements fmt.Formatter: String, whatever the verb.
func (l MultiLock) Format(f fmt.State, verb rune) { redact.Format(f, verb, l.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (l MultiLock) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns the names of the locks. It does not say whether they are still held.
func (m *MultiHold) String() string {
	if m == nil {
		return "MultiHold(none)"
	}
	return "MultiHold(" + namesOf(m.locks) + ")"
}

// Format implements fmt.Formatter: String, whatever the verb.
func (m *MultiHold) Format(f fmt.State, verb rune) { redact.Format(f, verb, m.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (m *MultiHold) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String returns the name and the number of servers: QuorumLock("orders:42" on 5 servers).
func (l QuorumLock) String() string {
	if l.all == nil || len(l.all.locks) == 0 {
		return "QuorumLock(none)"
	}
	return "QuorumLock(" + quorumText(l.all.locks) + ")"
}

// Format implements fmt.Formatter: String, whatever the verb.
func (l QuorumLock) Format(f fmt.State, verb rune) { redact.Format(f, verb, l.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (l QuorumLock) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String returns the name and the number of servers. It does not say whether the lock is
// still held.
func (h *QuorumHold) String() string {
	if h == nil || h.q == nil {
		return "QuorumHold(none)"
	}
	return "QuorumHold(" + quorumText(h.q.locks) + ")"
}

// Format implements fmt.Formatter: String, whatever the verb.
func (h *QuorumHold) Format(f fmt.State, verb rune) { redact.Format(f, verb, h.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (h *QuorumHold) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func quorumText(locks []Mutex) string {
	return fmt.Sprintf("%q on %d servers", reason.Shorten(locks[0].name), len(locks))
}

// namesOf quotes the first few names.
func namesOf(locks []Mutex) string {
	const most = 5
	var text []string
	for _, m := range locks[:min(len(locks), most)] {
		text = append(text, fmt.Sprintf("%q", reason.Shorten(m.name)))
	}
	if more := len(locks) - most; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, ", ")
}

// String returns the result, or that there is none yet. It does not wait.
func (f *Future[T]) String() string {
	switch {
	case f == nil || !f.complete.Load():
		return "Future(pending)"
	case f.err != nil:
		return "Future(" + f.err.Error() + ")"
	}
	return fmt.Sprintf("Future(%v)", f.value)
}

// Format implements fmt.Formatter: String, whatever the verb.
func (f *Future[T]) Format(s fmt.State, verb rune) { redact.Format(s, verb, f.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (f *Future[T]) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// String returns the fields that are set, without passwords.
func (c Config) String() string { return redact.Text("Config", redact.Struct(c)) }

// Format implements fmt.Formatter: String, whatever the verb.
func (c Config) Format(f fmt.State, verb rune) { redact.Format(f, verb, c.String()) }

// LogValue implements slog.LogValuer: the fields that are set, without passwords.
func (c Config) LogValue() slog.Value { return slog.GroupValue(redact.Struct(c)...) }

// MarshalJSON implements json.Marshaler: the fields that are set, without passwords.
func (c Config) MarshalJSON() ([]byte, error) { return redact.JSON(redact.Struct(c)) }

// String says which hooks are set.
func (h Hooks) String() string { return redact.Text("Hooks", redact.Struct(h)) }

// Format implements fmt.Formatter: String, whatever the verb.
func (h Hooks) Format(f fmt.State, verb rune) { redact.Format(f, verb, h.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (h Hooks) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// MarshalText implements encoding.TextMarshaler, for JSON: the text of the error.
func (e *NotAcquiredError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// MarshalText implements encoding.TextMarshaler, for JSON: the text of the error.
func (e *LostError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// MarshalText implements encoding.TextMarshaler, for JSON: the text of the error.
func (e *AckError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// MarshalJSON implements json.Marshaler: Err is its text. (Most errors are {} in JSON.)
func (e RenewedEvent) MarshalJSON() ([]byte, error) {
	type fields RenewedEvent
	return json.Marshal(struct {
		fields
		Err *string
	}{fields(e), textOf(e.Err)})
}

// MarshalJSON implements json.Marshaler: Err is its text. (Most errors are {} in JSON.)
func (e ConnEvent) MarshalJSON() ([]byte, error) {
	type fields ConnEvent
	return json.Marshal(struct {
		fields
		Err *string
	}{fields(e), textOf(e.Err)})
}

func textOf(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}

// String returns "all", "majority" or the number.
func (r Replicas) String() string {
	switch r {
	case AllReplicas:
		return "all"
	case MajorityOfReplicas:
		return "majority"
	}
	return fmt.Sprint(int(r))
}
