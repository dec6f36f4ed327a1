package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// privateWords are words that mean something only to those who wrote them, each with the words that
// the field has instead. No name that is declared may have one of them as a word: clear has no ear.
var privateWords = map[string]string{
	"burn": "in doubt", "burned": "in doubt",
	"crowd": "group, batch", "crowded": "full",
	"debt": "compensation, outstanding", "debts": "compensations, outstanding",
	"deed": "ready", "deeds": "ready",
	"ear": "subscription", "ears": "subscriptions",
	"era": "run, term", "eras": "runs, terms",
	"fate":      "outcome",
	"gathering": "multilock",
	"greet":     "handshake", "greeted": "handshaken", "greeting": "handshake", "greets": "handshake",
	"holdback": "blocked", "holdbacks": "blocked",
	"letgo": "unblock",
	"owe":   "outstanding, pending", "owed": "outstanding, pending", "owes": "outstanding, pending",
	"reign": "epoch", "reigns": "epochs",
	"scout": "probe", "scouts": "probes", "scouting": "probing",
	"stir": "wake", "stirred": "woken",
	"succession": "failover",
	"tally":      "counter", "tallies": "counters",
	"told": "notified, reported", "untold": "unreported",
}

// privatePackages are names that no package has.
var privatePackages = map[string]string{"kit": "testkit", "world": "env", "reason": "lockerr"}

// plainRoots are the folders without private words.
var plainRoots = []string{"resp", "internal", "cmd", "bench"}

// privateCounts has, for each other folder with private words, how many names have one. The list
// only gets shorter, and its numbers smaller.
const privateCounts = "internal/lint/testdata/private_words.txt"

func TestNames_PrivateWords_AreNotUsed(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	found := make(map[string][]string) // by folder
	for _, name := range repositoryFiles(t) {
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		found[path.Dir(name)] = append(found[path.Dir(name)], wordComplaints(name, src)...)
	}
	for dir := range found {
		slices.Sort(found[dir])
		found[dir] = slices.Compact(found[dir]) // its name counts once
	}
	for _, complaint := range wordCountComplaints(found, readText(t, privateCounts)) {
		t.Error(complaint)
	}
}

// wordCountComplaints compares what was found in each folder with the list of those that may have it.
func wordCountComplaints(found map[string][]string, list string) (all []string) {
	listed := make(map[string]int)
	for line := range strings.Lines(list) {
		dir, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		if err != nil || n <= 0 || slices.ContainsFunc(plainRoots, func(r string) bool { return within(dir, r) }) {
			all = append(all, fmt.Sprintf("%s: no line of it: %q", privateCounts, strings.TrimSpace(line)))
			continue
		}
		listed[dir] = n
		if len(found[dir]) < n {
			all = append(all, fmt.Sprintf("%s: it has %d private words by now: write that into %s", dir, len(found[dir]), privateCounts))
		}
	}
	for dir, complaints := range found {
		if n := listed[dir]; len(complaints) > n {
			if n > 0 {
				all = append(all, fmt.Sprintf("%s: %d private words, more than %d", dir, len(complaints), n))
			}
			all = append(all, complaints...)
		}
	}
	slices.Sort(all)
	return all
}

// wordComplaints complains about the private words in the names of a file: its own, that of its
// package, and those that it declares.
func wordComplaints(name string, src []byte) (all []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	check := func(what string, pos token.Pos) {
		if word, better := privateWord(what); word != "" {
			all = append(all, fmt.Sprintf("%s:%d: %s: say %s for %q", name, fset.Position(pos).Line, what, better, word))
		}
	}
	check(strings.TrimSuffix(path.Base(name), ".go"), file.Package)
	pkg := strings.TrimSuffix(file.Name.Name, "_test")
	_, better := privateWord(pkg)
	if better = cmp.Or(privatePackages[pkg], better); better != "" {
		all = append(all, fmt.Sprintf("%s: package %s: say %s", path.Dir(name), pkg, better)) // once for all files
	}
	ids := func(list ...*ast.Ident) {
		for _, id := range list {
			if id != nil {
				check(id.Name, id.Pos())
			}
		}
	}
	exprs := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				ids(id)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids(n.Name)
		case *ast.TypeSpec:
			ids(n.Name)
		case *ast.ValueSpec:
			ids(n.Names...)
		case *ast.Field:
			ids(n.Names...)
		case *ast.ImportSpec:
			ids(n.Name)
		case *ast.LabeledStmt:
			ids(n.Label)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				exprs(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				exprs(n.Key, n.Value)
			}
		}
		return true
	})
	return all
}

// privateWord returns the first private word of a name, and what to say instead; "" if it has none.
// Two words that follow each other count as one, too.
func privateWord(name string) (word, better string) {
	words := wordsOf(name)
	for i, w := range words {
		if better := privateWords[w]; better != "" {
			return w, better
		}
		if i > 0 {
			if better := privateWords[words[i-1]+w]; better != "" {
				return words[i-1] + w, better
			}
		}
	}
	return "", ""
}

// wordsOf splits a name at its capitals and underscores: HTTPServer_2 is http, server, 2.
func wordsOf(name string) (words []string) {
	runes := []rune(name)
	begin := 0
	for i := range runes {
		next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if i > begin && unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || next) {
			words = append(words, string(runes[begin:i]))
			begin = i
		}
		if runes[i] == '_' {
			words = append(words, string(runes[begin:i]))
			begin = i + 1
		}
	}
	words = append(words, string(runes[begin:]))
	for i := range words {
		words[i] = strings.ToLower(words[i])
	}
	return slices.DeleteFunc(words, func(w string) bool { return w == "" })
}

func TestWordsOf_Names_AreSplitAtCapitalsAndUnderscores(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"clear": "clear", "lostAndTold": "lost and told", "HTTPServer_2": "http server 2", "TestLock_Told_Ends": "test lock told ends",
		"_": "", "nodeIDs": "node i ds", "x": "x", "ID": "id",
	} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestWordComplaints_PrivateWords_AreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, src string
		want      string // part of the one complaint; "": none
	}{
		{"resp/a.go", "package p\nvar clear, operation, holdBackwards int", ""},
		{"resp/a.go", "package p\nvar weTold int", `a.go:2: weTold: say notified, reported for "told"`},
		{"resp/a.go", "package p\nfunc letGo() {}", `"letgo"`},
		{"resp/a.go", "package p\nfunc f(debts int) {}", "debts"},
		{"resp/a.go", "package p\ntype t struct{ ear int }", "ear"},
		{"resp/a.go", "package p\nfunc f() { era := 1 }", "era"},
		{"resp/a.go", "package p\nfunc f() { for _, scout := range x {} }", "scout"},
		{"resp/a.go", "package p\nfunc f() { other.Told() }", ""}, // declared elsewhere
		{"resp/told_test.go", "package p", "told_test"},
		{"resp/tally/a.go", "package tally", "tally"},
		{"resp/world/a.go", "package world", "package world: say env"},
		{"resp/world/a_test.go", "package world_test", "package world: say env"},
		{"resp/a.go", "package p\nvar world int", ""}, // of packages only
		{"resp/a.go", "package", "expected"},
	} {
		expectComplaint(t, c.src, wordComplaints(c.name, []byte(c.src)), c.want)
	}
}

func TestWordCountComplaints_ListOutOfDate_IsFound(t *testing.T) {
	t.Parallel()
	two := map[string][]string{"engine/a": {"told", "told"}, "resp": nil}
	for _, c := range []struct {
		list string
		want string // part of the first complaint; "": none
	}{
		{"engine/a 2\n", ""},
		{"engine/a 1\n", "2 private words, more than 1"},
		{"engine/a 3\n", "it has 2 private words by now"},
		{"engine/a 2\nengine/b 1\n", "engine/b: it has 0"},
		{"", "told"},
		{"engine/a 2\nresp 1\n", "no line of it"},
		{"engine/a two\n", "no line of it"},
	} {
		got := wordCountComplaints(two, c.list)
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%q: %q, want %q", c.list, got, c.want)
		}
	}
}
