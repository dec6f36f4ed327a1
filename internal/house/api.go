package house

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// exportedNames are the exported names of a package, sorted. Enum values are not among them: the
// constants of a group with iota. Neither are errors: variables called Err..., and types with a
// method Error.
func exportedNames(files []source) []string {
	names := make(map[string]bool)
	note := func(id *ast.Ident) {
		if id.IsExported() {
			names[id.Name] = true
		}
	}
	for _, file := range files {
		for _, decl := range file.syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					note(d.Name)
				}
			case *ast.GenDecl:
				if d.Tok == token.CONST && mentions(d, "iota") {
					continue
				}
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						note(spec.Name)
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							if d.Tok == token.CONST || !strings.HasPrefix(id.Name, "Err") {
								note(id)
							}
						}
					}
				}
			}
		}
	}
	for _, method := range exportedMethods(files) {
		if method.name == "Error" {
			delete(names, method.of)
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// mentions reports whether an identifier occurs in a node.
func mentions(node ast.Node, name string) bool {
	found := false
	ast.Inspect(node, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}

// method is a method of a type.
type method struct{ of, name string }

// exportedMethods are the exported methods of exported types, including interfaces. A promoted
// method counts once, for the embedded type.
func exportedMethods(files []source) []method {
	var all []method
	note := func(of string, name *ast.Ident) {
		if m := (method{of, name.Name}); ast.IsExported(of) && name.IsExported() && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	for _, file := range files {
		for _, decl := range file.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv != nil {
				note(typeName(d.Recv.List[0].Type), d.Name)
			}
		}
	}
	for name, spec := range types(files) {
		if i, ok := spec.Type.(*ast.InterfaceType); ok {
			for _, m := range i.Methods.List {
				for _, id := range m.Names {
					note(name, id)
				}
			}
		}
	}
	return all
}

// printers are methods that only print a value.
var printers = []string{"Format", "GoString", "LogValue", "MarshalJSON", "MarshalText", "String"}

func printing(methods []method) int {
	n := 0
	for _, m := range methods {
		if slices.Contains(printers, m.name) {
			n++
		}
	}
	return n
}

// holdTypes are the exported types of a hold, sorted: types with a method Unlock or Release, and
// types that embed one of them.
func holdTypes(files []source) []string {
	holds := make(map[string]bool)
	for _, m := range exportedMethods(files) {
		if m.name == "Unlock" || m.name == "Release" {
			holds[m.of] = true
		}
	}
	declared := types(files)
	for before := -1; before != len(holds); { // one that embeds one that embeds one
		before = len(holds)
		for name, spec := range declared {
			if s, ok := spec.Type.(*ast.StructType); ok && ast.IsExported(name) {
				for _, field := range s.Fields.List {
					if field.Names == nil && holds[typeName(field.Type)] {
						holds[name] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(holds))
}

// types are the types that a package declares, by name.
func types(files []source) map[string]*ast.TypeSpec {
	all := make(map[string]*ast.TypeSpec)
	for _, file := range files {
		for _, decl := range file.syntax.Decls {
			if d, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range d.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						all[spec.Name.Name] = spec
					}
				}
			}
		}
	}
	return all
}

// typeName is the name of a type of this package, of a pointer to one, or of an instance of a
// generic one; else "".
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.ParenExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return ""
}
