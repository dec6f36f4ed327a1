// Package redact writes what a value shows of itself in logs. Left alone, fmt, slog
// and encoding/json print every field: passwords, and fields that others write to at
// that moment.
package redact

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Format writes text for any verb, so that none of them prints fields: to be called
// by the method Format of a type. Quoting, hexadecimal digits and the width are done
// as for a string.
func Format(f fmt.State, verb rune, text string) {
	switch verb {
	case 's', 'q', 'x', 'X':
		fmt.Fprintf(f, fmt.FormatString(f, verb), text)
	default:
		if width, ok := f.Width(); ok && f.Flag('-') {
			fmt.Fprintf(f, "%-*s", width, text)
		} else if ok {
			fmt.Fprintf(f, "%*s", width, text)
		} else {
			_, _ = io.WriteString(f, text)
		}
	}
}

// mask stands for a secret.
const mask = "***"

// Struct returns the exported fields of a struct that are set. Passwords are masked,
// and of what cannot be read as text (functions, pointers) only that it is set. Fields
// in omit are left out.
func Struct(v any, omit ...string) []slog.Attr {
	var attrs []slog.Attr
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		field, value := s.Type().Field(i), s.Field(i)
		if !field.IsExported() || value.IsZero() || slices.Contains(omit, field.Name) {
			continue
		}
		attrs = append(attrs, slog.Any(field.Name, shown(field.Name, value)))
	}
	return attrs
}

func shown(name string, v reflect.Value) any {
	if strings.Contains(name, "Password") {
		return mask
	}
	if text, ok := v.Interface().(fmt.Stringer); ok && v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
		return text.String()
	}
	switch v.Kind() {
	case reflect.String:
		return Addr(v.String())
	case reflect.Slice:
		var list []string
		for i := range v.Len() {
			list = append(list, Addr(fmt.Sprint(v.Index(i))))
		}
		return list
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		return v.Interface()
	}
	return "set"
}

// assigned is how other libraries take a password: host:port,password=secret.
var assigned = regexp.MustCompile(`(?i)(pass\w*=).*`)

// Addr returns an address without the user and password that somebody may have
// written into it. The path of a unix socket may have an @ in it.
func Addr(addr string) string {
	addr = assigned.ReplaceAllString(addr, "${1}"+mask)
	if strings.HasPrefix(addr, "/") {
		return addr
	}
	if i := strings.LastIndexByte(addr, '@'); i >= 0 {
		return mask + addr[i:]
	}
	return addr
}

// Text writes attributes as Go writes a struct: Config{DB:2 Lease:20s}.
func Text(name string, attrs []slog.Attr) string {
	var s strings.Builder
	for i, a := range attrs {
		if i > 0 {
			s.WriteByte(' ')
		}
		fmt.Fprintf(&s, "%s:%v", a.Key, a.Value.Any())
	}
	return name + "{" + s.String() + "}"
}

// JSON writes attributes as an object.
func JSON(attrs []slog.Attr) ([]byte, error) {
	object := make(map[string]any, len(attrs))
	for _, a := range attrs {
		object[a.Key] = a.Value.Any()
	}
	return json.Marshal(object)
}
