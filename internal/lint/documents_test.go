package lint

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are the files of docs, as slash paths.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, name := range repositoryFiles(t) {
		if path.Dir(name) == "docs" && path.Ext(name) == ".md" {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		t.Fatal("docs has no page")
	}
	return all
}

// documents is everything that is written to be read from top to bottom.
func documents(t *testing.T) []string {
	t.Helper()
	return append([]string{"README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md"}, pages(t)...)
}

var (
	fenced  = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the places that a link can point to in a document, as GitHub names them.
func anchors(text string) map[string]bool {
	found := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		slug := strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		base := slug
		for n := 1; found[slug]; n++ {
			slug = fmt.Sprintf("%s-%d", base, n)
		}
		found[slug] = true
	}
	return found
}

// links are the relative links of a document: the file, as a path from the root, and the
// anchor, "" if there is none.
func links(name, text string) [][2]string {
	var all [][2]string
	for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		to, anchor, _ := strings.Cut(m[1], "#")
		if to == "" {
			to = name
		} else {
			to = path.Join(path.Dir(name), to)
		}
		all = append(all, [2]string{to, anchor})
	}
	return all
}

// deadLinks complains about links between files that lead nowhere.
func deadLinks(documents map[string]string, files []string) []string {
	var dead []string
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		for _, to := range links(name, documents[name]) {
			text, isDocument := documents[to[0]]
			switch {
			case !slices.Contains(files, to[0]):
				dead = append(dead, fmt.Sprintf("%s: there is no file %s", name, to[0]))
			case to[1] != "" && !isDocument:
				dead = append(dead, fmt.Sprintf("%s: %s is no document, so it has no #%s", name, to[0], to[1]))
			case to[1] != "" && !anchors(text)[to[1]]:
				dead = append(dead, fmt.Sprintf("%s: %s has no heading #%s", name, to[0], to[1]))
			}
		}
	}
	return dead
}

func TestDocuments_Links_LeadSomewhere(t *testing.T) {
	t.Parallel()
	texts, found := make(map[string]string), 0
	for _, name := range documents(t) {
		texts[name] = readText(t, name)
		found += len(links(name, texts[name]))
	}
	if found < len(pages(t)) {
		t.Errorf("only %d links were found", found)
	}
	for _, complaint := range deadLinks(texts, repositoryFiles(t)) {
		t.Error(complaint)
	}
}

func TestDeadLinks_Samples_AreFound(t *testing.T) {
	t.Parallel()
	got := deadLinks(map[string]string{
		"README.md": "[a](docs/a.md) [b](docs/b.md) [c](docs/a.md#two-words) [d](docs/a.md#three) [e](https://example.org/x)\n```\n[f](g)\n```\n",
		"docs/a.md": "# A\n\n## Two `words`\n\n```\n# three\n```\n[up](../README.md) [here](#a) [gone](#b) [out](README.md) [code](../go.mod#a)\n",
	}, []string{"README.md", "go.mod", "docs/a.md"})
	want := []string{
		"README.md: there is no file docs/b.md",
		"README.md: docs/a.md has no heading #three",
		"docs/a.md: docs/a.md has no heading #b",
		"docs/a.md: there is no file docs/README.md",
		"docs/a.md: go.mod is no document, so it has no #a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestReadme_Pages_AreLinked(t *testing.T) {
	t.Parallel()
	linked := make(map[string]bool)
	for _, to := range links("README.md", readText(t, "README.md")) {
		linked[to[0]] = true
	}
	for _, page := range pages(t) {
		if !linked[page] {
			t.Errorf("README.md does not link %s", page)
		}
	}
}

// A reader sent by a search engine learns first whether this is the right page.
func TestDocuments_Pages_SayWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	first := regexp.MustCompile(`^# [^\n]+\n\nThis page [^.]+\.`)
	for _, page := range pages(t) {
		if !first.MatchString(readText(t, page)) {
			t.Errorf(`%s does not begin with a title and a sentence "This page ..."`, page)
		}
	}
}

// Messages and comments send the reader to pages.
func TestSources_PagesNamed_Exist(t *testing.T) {
	t.Parallel()
	page := regexp.MustCompile(`\bdocs/[\w/-]+\.md`)
	files, named := repositoryFiles(t), 0
	for _, name := range files {
		if path.Ext(name) != ".go" || strings.HasPrefix(name, "internal/lint/") {
			continue
		}
		for _, to := range page.FindAllString(readText(t, name), -1) {
			named++
			if !slices.Contains(files, to) {
				t.Errorf("%s names %s, which does not exist", name, to)
			}
		}
	}
	if named == 0 {
		t.Error("no source names a page")
	}
}

// notPlain are words and phrases that make a reader stop, in the documents and in the documentation
// of the API.
var notPlain = regexp.MustCompile(`(?i)\b(?:whoever|whomever|hence|shall|whereby|all the same|who (?:asks|waits)|(?:no|some)body who)\b`)

// notForPages are phrases that the pages do not have beside these: vague quantities, idioms that are
// none, and events in the words of a conversation.
var notForPages = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(?:to be had|so many|for so long|now and then|sooner or later|no matter|mostly|for a moment)\b`),
	regexp.MustCompile(`(?i)\b(?:go(?:es|ing)? on|went on|hears?|heard|(?:it is|is it) so|(?:those|one|ones|any|every) who)\b`),
	// A sentence that begins with a relative clause or with the genitive: name the noun first.
	regexp.MustCompile(`(?:^|[.:;!?|] |^[-*] |^\d+\. |\*\* )(?:Who|Of|What nobody|One (?:that|who)) `),
	// "has the engine call fn": the engine calls fn.
	regexp.MustCompile(`\bha(?:s|ve) (?:an? |the )?[A-Za-z]+ (?:called|done|asked|call|ask)\b`),
}

// beenDone is what the last of notForPages must not match.
var beenDone = regexp.MustCompile(`\bha(?:s|ve) (?:been|not|never|already|just) \w+`)

// passage is a paragraph, an item of a list, a row of a table or a heading.
type passage struct {
	line int
	text string
}

// item begins one that goes before a paragraph has ended.
var item = regexp.MustCompile(`^(?:[-*] |\d+\. |#|\|)`)

// passages are those of a document, without its code, or of a package's documentation.
func passages(text string) []passage {
	text = fenced.ReplaceAllStringFunc(text, func(code string) string {
		return strings.Repeat("\n", strings.Count(code, "\n")) // lines keep their numbers
	})
	var all []passage
	n, open := 0, false
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(strings.TrimPrefix(line, "//"))
		switch {
		case line == "":
			open = false
		case open && !item.MatchString(line):
			all[len(all)-1].text += " " + line
		default:
			all = append(all, passage{n, line})
			open = !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "#")
		}
	}
	return all
}

// notPlainIn is the first phrase of a passage of a page that makes a reader stop, or "".
func notPlainIn(text string) string {
	for _, phrase := range append(notForPages, notPlain) {
		if m := phrase.FindString(beenDone.ReplaceAllString(text, "")); m != "" {
			return m
		}
	}
	return ""
}

// The documents, and the documentation of the API, are for readers who do not know Pawl.
func TestDocuments_Words_ArePlain(t *testing.T) {
	t.Parallel()
	for _, name := range append(documents(t), "engine/doc.go", "engine/testdata/api.golden") {
		for _, p := range passages(readText(t, name)) {
			if m := notPlainIn(p.text); m != "" {
				t.Errorf("%s:%d: %q: say it in plain words", name, p.line, m)
			}
		}
	}
}

func TestPhrasesThatAreNotPlainAreFound(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"Who waits longest is first.",
		"A lock has an end. Of several permits some may be gone.",
		"- Of an orphan the server counts one more.",
		"| `Lock` | One that has ended is refused |",
		"It has Fired called at that time.", "Do has the engine call fn.",
		"There are none to be had.", "It takes so many permits.", "The others go on.", "A waiter hears of it.",
		"Nobody who\nwaits is told.",
	} {
		found := slices.ContainsFunc(passages(text), func(p passage) bool { return notPlainIn(p.text) != "" })
		if !found {
			t.Errorf("not found: %q", text)
		}
	}
	for _, text := range []string{
		"The call has been called off.", "A list of several locks. It has a name.", "The lock that a dead process held is free.",
		"```\nOf code nothing is said, who waits\n```\n",
	} {
		for _, p := range passages(text) {
			if m := notPlainIn(p.text); m != "" {
				t.Errorf("%q is plain, found %q", text, m)
			}
		}
	}
}
