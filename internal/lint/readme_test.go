package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func readText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(moduleRoot(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// between returns what stands between two marks, or "" if one is missing.
func between(text, from, to string) string {
	_, rest, ok := strings.Cut(text, from)
	inside, _, closed := strings.Cut(rest, to)
	if !ok || !closed {
		return ""
	}
	return inside
}

// maxReadme is what a reader takes in at once. More belongs into a page of docs.
const maxReadme = 10_000

func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	if n := len(readText(t, "README.md")); n > maxReadme {
		t.Errorf("README.md has %d bytes, more than %d: move some of it into a page of docs", n, maxReadme)
	}
}

func TestDocumentsShowCommandsThatTheMakefileHas(t *testing.T) {
	t.Parallel()
	readme, makefile := readText(t, "README.md"), readText(t, "Makefile")
	for _, must := range []string{"make run", "make test"} {
		if !strings.Contains(readme, "\n"+must+" ") {
			t.Errorf("README.md does not show %q", must)
		}
	}
	for _, name := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(readText(t, name), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s shows %q, which the Makefile does not have", name, m[0])
			}
		}
	}
}

// TestReadmeProgramIsTheExecutedExample compares the program of the README with the
// Example, which runs on a server of its own: that is the only difference.
func TestReadmeProgramIsTheExecutedExample(t *testing.T) {
	t.Parallel()
	program := between(readText(t, "README.md"), "<!-- program: the executed Example of engine/example_test.go -->\n```go\n", "```\n")
	example := readText(t, "engine/example_test.go")
	for _, replace := range [][2]string{
		{"package engine_test\n", "package main\n"},
		{"func Example() {", "func main() {"},
		{"\tserver := startRedis() // stands in for redis://127.0.0.1:6379\n\tdefer server.Close()\n\n", ""},
		{"server.URL()", `"redis://127.0.0.1:6379"`},
	} {
		if strings.Count(example, replace[0]) != 1 {
			t.Fatalf("engine/example_test.go does not have %q once", replace[0])
		}
		example = strings.Replace(example, replace[0], replace[1], 1)
	}
	example, output, _ := strings.Cut(example, "\t// Output:\n")
	if output == "" {
		t.Fatal("the Example has no // Output, so it is not executed")
	}
	example += "}\n"
	if program != example {
		t.Errorf("the program of README.md is not the Example of engine/example_test.go.\nREADME:\n%s\nExample:\n%s", program, example)
	}
}
