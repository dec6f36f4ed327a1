package lint

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^([ \t]*)```go\n(.*?)^[ \t]*```")

// goBlocks are the Go programs and fragments of a document, without what they are
// indented by.
func goBlocks(text string) []string {
	var all []string
	for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
		var block strings.Builder
		for line := range strings.Lines(m[2]) {
			block.WriteString(strings.TrimPrefix(line, m[1]))
		}
		all = append(all, block.String())
	}
	return all
}

// imported are the packages that fragments may name without importing them.
var imported = map[string]string{
	"context": "context",
	"errors":  "errors",
	"fmt":     "fmt",
	"log":     "log",
	"testing": "testing",
	"time":    "time",
	"engine":  modulePath + "/engine",
	"goleak":  "go.uber.org/goleak",
}

// program makes a block a file that can be compiled. A block that is no program is
// declarations, or statements about these variables.
func program(block string) string {
	if strings.HasPrefix(block, "package ") {
		return block
	}
	var file strings.Builder
	file.WriteString("package fragment\n")
	if !strings.HasPrefix(block, "func ") {
		block = "func _(ctx context.Context, eng, a, b, c *engine.Engine, m engine.Mutex) error {\n" + block + "return nil\n}\n"
	}
	for name, path := range imported {
		if strings.Contains(block, name+".") {
			fmt.Fprintf(&file, "import %q\n", path)
		}
	}
	file.WriteString(block)
	return file.String()
}

// A reader copies what a document shows, so the compiler has to take it.
func TestDocuments_GoCode_Compiles(t *testing.T) {
	t.Parallel()
	root, dir := moduleRoot(t), t.TempDir()
	overlay := make(map[string]string)
	args := []string{"list", "-export", "-overlay", filepath.Join(dir, "overlay.json")} // go build would link the programs, too
	for _, name := range documents(t) {
		for i, block := range goBlocks(readText(t, name)) {
			if ofPlugin.MatchString(block) {
				continue // it needs another module: see the next test
			}
			// The error of a compiler names this package.
			pkg := strings.NewReplacer("/", "_", ".", "_").Replace(fmt.Sprintf("%s_block_%d", name, i+1))
			file := filepath.Join(dir, pkg+".go")
			if err := os.WriteFile(file, []byte(program(block)), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay[filepath.Join(root, "internal", "lint", pkg, "block.go")] = file
			args = append(args, "./internal/lint/"+pkg)
		}
	}
	if len(overlay) < 5 {
		t.Fatalf("only %d blocks were found", len(overlay))
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), replace, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ofPlugin finds what a program needs of a plugin.
var ofPlugin = regexp.MustCompile(`\b(pawl\w+)\.New\(`)

// What a document shows of a plugin is in the Example of it, line by line: but for what that has to do
// because it is a test, where a comment says what it stands in for.
func TestDocuments_GoCodeOfPlugins_IsThatOfTheirExamples(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, name := range documents(t) {
		for _, block := range goBlocks(readText(t, name)) {
			m := ofPlugin.FindStringSubmatch(block)
			if m == nil {
				continue
			}
			found[m[1]] = true
			example := map[string]bool{"": true}
			for line := range strings.Lines(readText(t, "plugin/"+m[1]+"/example_test.go")) {
				line = strings.TrimSpace(line)
				_, instead, _ := strings.Cut(line, " // stands in for ")
				example[line], example[instead] = true, true
			}
			asTest := strings.NewReplacer("package main\n", "package "+m[1]+"_test\n", "func main()", "func Example()", `"redis://127.0.0.1:6379"`, "server.URL()")
			for line := range strings.Lines(asTest.Replace(block)) {
				if line := strings.TrimSpace(line); !example[line] {
					t.Errorf("%s: the Example of %s has no line %q", name, m[1], line)
				}
			}
		}
	}
	for _, plugin := range []string{"pawlprom", "pawlotel"} {
		if !found[plugin] {
			t.Errorf("no document shows %s", plugin)
		}
	}
}

// fields are the exported fields of a struct.
func fields(t *testing.T, file, structure string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, readText(t, file), parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != structure {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			for _, name := range field.Names {
				if name.IsExported() {
					all = append(all, name.Name)
				}
			}
		}
		return false
	})
	if len(all) == 0 {
		t.Fatalf("%s: no struct %s", file, structure)
	}
	return all
}

// firstCells are what a page's tables say in their first column.
func firstCells(text string) string {
	var all strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "| "); ok {
			first, _, _ := strings.Cut(rest, " | ")
			all.WriteString(first + "\n")
		}
	}
	return all.String()
}

func TestDocuments_ConfigFields_AreExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ page, from, to, file, structure, beside string }{
		{page: "docs/configuration.md", from: "# Configuration\n", to: "## Passwords\n", file: "engine/config.go", structure: "Config"},
		{page: "docs/observability.md", from: "## Your own Observer\n", to: "## What it costs\n", file: "engine/observer.go", structure: "ObserverFuncs"},
		{page: "docs/operations.md", from: "## Statistics\n", to: "`pprof.Handler`", file: "engine/stats.go", structure: "Stats",
			beside: "gauges (`Held`, `Waiting`, `InFlight`, `Channels`)"},
	} {
		text := between(readText(t, c.page), c.from, c.to)
		if text == "" || !strings.Contains(text, c.beside) {
			t.Errorf("%s does not have %q, %q and %q", c.page, c.from, c.beside, c.to)
		}
		explained := firstCells(text) + c.beside
		for _, field := range fields(t, c.file, c.structure) {
			if !strings.Contains(explained, "`"+field+"`") {
				t.Errorf("%s does not explain %s.%s", c.page, c.structure, field)
			}
		}
	}
}

// Tables name much of the API outside of programs.
func TestDocuments_EngineNames_Exist(t *testing.T) {
	t.Parallel()
	api := readText(t, "engine/testdata/api.golden")
	named := regexp.MustCompile(`\b(engine|Config|Stats)\.([A-Z]\w*)`)
	known := map[string][]string{
		"Config": fields(t, "engine/config.go", "Config"),
		"Stats":  fields(t, "engine/stats.go", "Stats"),
	}
	found := 0
	for _, name := range append(pages(t), "README.md") {
		for _, m := range named.FindAllStringSubmatch(readText(t, name), -1) {
			found++
			words := strings.Join(known[m[1]], " ")
			if m[1] == "engine" {
				words = api
			}
			if !regexp.MustCompile(`\b` + m[2] + `\b`).MatchString(words) {
				t.Errorf("%s: there is no %s", name, m[0])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d names were found", found)
	}
}
