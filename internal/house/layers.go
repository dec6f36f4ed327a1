package house

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// reference is from a file to another one of its package, by their names without ".go".
type reference struct{ from, to string }

// fileReferences are the pairs of files of a package of which the first uses a name that the
// second declares. A method or field counts if a single file declares one so called: syntax does not
// say whose it is. In commit 177e984 that misses 8 of the 180 pairs that types give.
func fileReferences(files []source) []reference {
	names, members := make(map[string]string), make(map[string]string)
	declare := func(in map[string]string, id *ast.Ident, file string) {
		if old, known := in[id.Name]; known && old != file {
			file = "" // two files declare it
		}
		in[id.Name] = file
	}
	for _, file := range files {
		for _, decl := range file.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					declare(names, d.Name, file.name())
				} else {
					declare(members, d.Name, file.name())
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						declare(names, spec.Name, file.name())
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							declare(names, id, file.name())
						}
					}
				}
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			var list *ast.FieldList
			switch node := node.(type) {
			case *ast.StructType:
				list = node.Fields
			case *ast.InterfaceType:
				list = node.Methods
			default:
				return true
			}
			for _, field := range list.List {
				for _, id := range field.Names {
					declare(members, id, file.name())
				}
			}
			return true
		})
	}
	var all []reference
	for _, file := range files {
		refer := func(to string) {
			if r := (reference{file.name(), to}); to != "" && to != r.from && !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
		// What the parser did not find in the file is an import, of another file, or of no file.
		for _, id := range file.syntax.Unresolved {
			if !slices.Contains(imported(file), id.Name) {
				refer(names[id.Name])
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.SelectorExpr:
				refer(members[node.Sel.Name])
			case *ast.KeyValueExpr: // a field, or a constant that is an index
				if key, ok := node.Key.(*ast.Ident); ok && key.Obj == nil {
					if _, isMember := members[key.Name]; isMember {
						refer(members[key.Name])
					} else {
						refer(names[key.Name])
					}
				}
			}
			return true
		})
	}
	return all
}

// imported are the names by which a file knows what it imports.
func imported(file source) []string {
	var all []string
	for _, spec := range file.syntax.Imports {
		name := path.Base(strings.Trim(spec.Path.Value, `"`))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		all = append(all, name)
	}
	return all
}

// layersOf reads the layers of a package in its documentation: the indented lines of the section
// "# Layers", the lowest first, each with its files. It is nil if there is no such section.
func layersOf(files []source) map[string]int {
	for _, file := range files {
		if file.name() != "doc" || file.syntax.Doc == nil {
			continue
		}
		_, section, ok := strings.Cut(file.syntax.Doc.Text(), "\n# Layers\n")
		if !ok {
			return nil
		}
		section, _, _ = strings.Cut(section, "\n# ")
		layers, height := make(map[string]int), 0
		for line := range strings.Lines(section) {
			if !strings.HasPrefix(line, "\t") {
				continue
			}
			for name := range strings.FieldsSeq(strings.ReplaceAll(line, ",", " ")) {
				layers[name] = height
			}
			height++
		}
		return layers
	}
	return nil
}

// upward counts the references to a file of a higher layer. One from or to a file that no layer
// lists counts, too.
func upward(references []reference, layers map[string]int) int {
	n := 0
	for _, r := range references {
		from, known := layers[r.from]
		to, knownTo := layers[r.to]
		if !known || !knownTo || to > from {
			n++
		}
	}
	return n
}
