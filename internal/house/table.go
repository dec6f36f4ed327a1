package house

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Row is a line of the table.
type Row struct {
	Key   string // names it among the recorded values
	What  string
	Value int
	Limit int    // 0: it has none, and cannot fail
	Note  string // what else is known of it; "": nothing
}

// Over reports whether the value is beyond the limit.
func (r Row) Over() bool { return r.Limit > 0 && r.Value > r.Limit }

// Statements are limited in proportion to lines, since joined lines have as many statements.
// Commit 177e984, whose 21,500 lines (by this package's count 21,525) the limit of lines refers
// to, had 8,335 statements by this package's count.
const (
	mostLines      = 17_500
	mostStatements = 8_335 * mostLines / 21_500
)

// core is the package that decides about one lock.
const core = "engine/internal/lock"

// Measure measures the tree at the root of fsys.
func Measure(fsys fs.FS) ([]Row, error) {
	all, err := sources(fsys, "engine")
	if err != nil {
		return nil, err
	}
	front, shipped, machine := inFolder(all, "engine"), withoutTools(all), inFolder(all, core)
	for folder, files := range map[string][]source{"engine": front, core: machine} {
		if len(files) == 0 {
			return nil, fmt.Errorf("%s has no source files", folder)
		}
	}
	tests, err := testFiles(fsys, "engine")
	if err != nil {
		return nil, err
	}
	design, err := fs.ReadFile(fsys, "DESIGN.md")
	if err != nil {
		return nil, err
	}
	doc, err := fs.ReadFile(fsys, "engine/doc.go")
	if err != nil {
		return nil, err
	}
	promises, err := fs.ReadFile(fsys, "docs/promises.md")
	if err != nil {
		return nil, err
	}
	removals, err := itemLines(string(promises), removalItem)
	if err != nil {
		return nil, fmt.Errorf("docs/promises.md: %w", err)
	}
	methods := exportedMethods(front)
	holds := holdTypes(front)
	return []Row{
		{Key: "names", What: "engine: exported names, without enum values and errors", Value: len(exportedNames(front)), Limit: 60},
		{Key: "methods", What: "engine: exported methods of exported types", Value: len(methods), Limit: 145,
			Note: fmt.Sprintf("%d only print", printing(methods))},
		{Key: "hold-types", What: "engine: types of a hold", Value: len(holds), Limit: 2, Note: strings.Join(holds, " ")},
		{Key: "source-files", What: "engine/: source files", Value: len(front), Limit: 24},
		{Key: "test-files", What: "engine/: test files, without example_*", Value: tests, Limit: 30},
		{Key: "lines", What: "engine/...: shipped lines", Value: lines(shipped), Limit: mostLines,
			Note: "Go with enginetest, without " + "the simulation, test kits and suites, and what inspects"},
		{Key: "statements", What: "engine/...: shipped statements", Value: statements(shipped), Limit: mostStatements, Note: "the same files"},
		{Key: "design-bytes", What: "DESIGN.md: bytes", Value: len(design), Limit: 30_000},
		{Key: "doc-lines", What: "engine/doc.go: lines", Value: countLines(doc), Limit: 120},
		{Key: "removal-lines", What: "docs/promises.md: lines on removals", Value: removals, Limit: 8, Note: "the item " + removalItem},
		{Key: "core-ports", What: core + ": methods and func fields of ports", Value: ports(machine), Limit: 10, Note: "all its interfaces and structs"},
		{Key: "core-booleans", What: core + ": boolean fields and bit flags", Value: booleans(machine), Limit: 25},
		upwardRow(machine),
	}, nil
}

// upwardRow is the row of references that run upward. Without layers that is every reference.
func upwardRow(files []source) Row {
	references, layers := fileReferences(files), layersOf(files)
	row := Row{Key: "core-upward", What: core + ": references between files that run upward", Value: upward(references, layers), Limit: len(references) / 10}
	row.Note = fmt.Sprintf("of %d", len(references))
	if layers == nil {
		row.Note += ", no layers listed"
	}
	return row
}

// Table is the rows as text. A row beyond its limit is over, and shows its recorded value if it has
// one.
func Table(rows []Row, recorded Recorded) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ttoday\tlimit\t\t")
	for _, row := range rows {
		limit, verdict := "", ""
		if row.Limit > 0 {
			limit, verdict = strconv.Itoa(row.Limit), "ok"
		}
		if row.Over() {
			verdict = "over"
			if old, known := recorded[row.Key]; known {
				verdict = fmt.Sprintf("over, recorded %d", old)
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", row.What, row.Value, limit, verdict, row.Note)
	}
	w.Flush()
	return text.String()
}
