// Package redacttest finds out what the types of a package show of themselves in logs.
package redacttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// longest is how much of a line one value may fill.
const longest = 1100

// Every checks that each exported type of the package in this folder has samples, and
// prints all of them; a type that somebody adds later cannot be forgotten.
func Every(t *testing.T, samples map[string][]any, secrets ...string) {
	t.Helper()
	declared := exportedTypes(t, ".")
	for name := range declared {
		if len(samples[name]) == 0 {
			t.Errorf("%s has no sample: what does it show in a log?", name)
		}
	}
	for name, list := range samples {
		if !declared[name] {
			t.Errorf("%s is no exported type of this package", name)
		}
		for _, sample := range list {
			Check(t, sample, secrets...)
		}
	}
}

// exportedTypes parses the package in a folder.
func exportedTypes(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	types := make(map[string]bool)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() {
				types[spec.Name.Name] = true
			}
			_, body := n.(*ast.BlockStmt)
			return !body
		})
	}
	if len(types) == 0 {
		t.Fatalf("no exported type in %s", dir)
	}
	return types
}

// Check prints a value with every verb of fmt, through slog and as JSON, by itself and
// in exported places of other values, and looks for secrets in what comes out.
func Check(t *testing.T, value any, secrets ...string) {
	t.Helper()
	for where, v := range places(value) {
		for way, text := range Prints(t, v) {
			if text == "" || len(text) > longest {
				t.Errorf("%T, %s, %s: %d bytes: %.300q", value, where, way, len(text), text)
			}
			Secret(t, fmt.Sprintf("%T, %s, %s", value, where, way), text, secrets...)
		}
	}
}

// Secret fails the test if a secret is in text, in hexadecimal digits too.
func Secret(t *testing.T, what, text string, secrets ...string) {
	t.Helper()
	for _, s := range secrets {
		if strings.Contains(text, s) || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", s)) {
			t.Errorf("%s: a secret is shown: %.300q", what, text)
		}
	}
}

// places puts a value where programs put it.
func places(value any) map[string]any {
	v := reflect.ValueOf(value)
	list := reflect.MakeSlice(reflect.SliceOf(v.Type()), 1, 1)
	list.Index(0).Set(v)
	named := reflect.MakeMap(reflect.MapOf(reflect.TypeFor[string](), v.Type()))
	named.SetMapIndex(reflect.ValueOf("key"), v)
	field := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "Field", Type: v.Type()}}))
	field.Elem().Field(0).Set(v)
	all := map[string]any{
		"alone": value, "in a slice": list.Interface(), "in a map": named.Interface(),
		"in a struct": field.Elem().Interface(), "in a struct, by its address": field.Interface(),
		"in an interface": struct{ Any any }{value},
	}
	if v.Kind() != reflect.Pointer {
		address := reflect.New(v.Type())
		address.Elem().Set(v)
		all["by its address"] = address.Interface()
	}
	return all
}

// verbs are all letters, for a typing error is as good as a verb; but those that ask no
// value: %T, %p, and %w, for which fmt prints the fields of what is no error. They are for
// values that format themselves. Behind a wrong verb fmt follows the pointer in another value,
// though go vet has found it before; so for these the verbs are those that vet lets pass.
const verbs, rightVerbs = "abcdefghijklmnoqrstuvxyzEFGOUX", "vdoxX"

// Prints prints a value in every way.
func Prints(t *testing.T, v any) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	formats := []string{"%+v", "%#v", "%#x", "%40v", "%-40v"}
	is := verbs
	switch v.(type) {
	case fmt.Formatter:
	case error, fmt.Stringer:
		is = rightVerbs + "sq"
	default:
		is = rightVerbs
	}
	for _, verb := range is {
		formats = append(formats, "%"+string(verb))
	}
	for _, format := range formats {
		texts[format] = fmt.Sprintf(format, v)
	}
	texts["Sprint"] = fmt.Sprint(v)
	var text, object bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("m", "value", v)
	slog.New(slog.NewJSONHandler(&object, nil)).Info("m", "value", v)
	texts["slog as text"], texts["slog as JSON"] = text.String(), object.String()
	b, err := json.Marshal(v)
	if unsupported := new(json.UnsupportedTypeError); errors.As(err, &unsupported) {
		return texts // it has functions
	}
	if err != nil || strings.Contains(object.String(), "!ERROR") {
		t.Errorf("%T as JSON: %v; slog: %s", v, err, object.String())
	}
	texts["JSON"] = string(b)
	return texts
}
