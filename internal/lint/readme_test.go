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

// maxReadme is what a reader takes in at once. More belongs in a page of docs.
const maxReadme = 10_000

func TestReadme_Length_IsShort(t *testing.T) {
	t.Parallel()
	if n := len(readText(t, "README.md")); n > maxReadme {
		t.Errorf("README.md has %d bytes, more than %d: move some of it into a page of docs", n, maxReadme)
	}
}

func TestDocuments_MakeCommands_Exist(t *testing.T) {
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

// programMark is what stands before a program: the Example that it is.
var programMark = regexp.MustCompile("<!-- program: the executed (Example\\w*) of (engine/example\\w*_test\\.go) -->\n```go\n((?s:.*?))```\n")

// TestDocuments_Programs_AreExecutedExamples compares the programs of documents with Examples,
// which run on a server of their own: that is the only difference. The README has one, and so
// has the page of each kind of synchronizer.
func TestDocuments_Programs_AreExecutedExamples(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		"README.md", "docs/mutex.md", "docs/fencing.md", "docs/fair.md", "docs/rw.md",
		"docs/permits.md", "docs/semaphore.md", "docs/latch.md", "docs/many-locks.md",
	} {
		programs := programMark.FindAllStringSubmatch(readText(t, page), -1)
		if len(programs) == 0 {
			t.Errorf("%s has no program that is an Example", page)
		}
		for _, m := range programs {
			if example := programOf(t, m[1], readText(t, m[2])); m[3] != example {
				t.Errorf("the program of %s is not %s of %s.\n%s\nExample:\n%s", page, m[1], m[2], m[3], example)
			}
		}
	}
}

// standIn is a server of an Example's own, in the place of one that runs.
var standIn = regexp.MustCompile(`\t(\w+) := startRedis\(\) // stands in for (redis://\S+)\n\tdefer \w+\.Close\(\)\n\n`)

// programOf is the program that an Example is, which is alone in its file.
func programOf(t *testing.T, name, file string) string {
	t.Helper()
	replace := func(old, by string) {
		if strings.Count(file, old) != 1 {
			t.Fatalf("the file of %s does not have %q once", name, old)
		}
		file = strings.Replace(file, old, by, 1)
	}
	replace("package engine_test\n", "package main\n")
	replace("func "+name+"() {", "func main() {")
	servers := standIn.FindAllStringSubmatch(file, -1)
	if len(servers) == 0 {
		t.Fatalf("%s starts no server", name)
	}
	for _, server := range servers {
		replace(server[0], "")
		replace(server[1]+".URL()", `"`+server[2]+`"`)
	}
	program, output, _ := strings.Cut(file, "\t// Output:\n")
	if output == "" {
		t.Fatalf("%s has no // Output, so it is not executed", name)
	}
	return program + "}\n"
}
