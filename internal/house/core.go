package house

import (
	"go/ast"
	"go/token"
)

// ports counts the calls out of a package that other packages implement: methods of its interfaces,
// and fields of its structs that are functions.
func ports(files []source) int {
	declared := types(files)
	isFunc := func(e ast.Expr) bool {
		if spec := declared[typeName(e)]; spec != nil {
			e = spec.Type
		}
		_, ok := e.(*ast.FuncType)
		return ok
	}
	n := 0
	for _, file := range files {
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.InterfaceType:
				for _, m := range node.Methods.List {
					n += len(m.Names) // an embedded interface has its methods where it is declared
				}
			case *ast.StructType:
				for _, field := range node.Fields.List {
					if isFunc(field.Type) {
						n += max(len(field.Names), 1)
					}
				}
			}
			return true
		})
	}
	return n
}

// booleans counts the fields of structs that are a bool or an array of them, and the constants that
// are bit flags.
func booleans(files []source) int {
	declared := types(files)
	isBool := func(e ast.Expr) bool {
		if array, ok := e.(*ast.ArrayType); ok {
			e = array.Elt
		}
		if atomic, ok := e.(*ast.SelectorExpr); ok {
			return atomic.Sel.Name == "Bool"
		}
		if spec := declared[typeName(e)]; spec != nil {
			e = spec.Type
		}
		id, ok := e.(*ast.Ident)
		return ok && id.Name == "bool"
	}
	n := 0
	for _, file := range files {
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.StructType:
				for _, field := range node.Fields.List {
					if isBool(field.Type) {
						n += max(len(field.Names), 1)
					}
				}
			case *ast.GenDecl:
				if node.Tok == token.CONST {
					n += bitFlags(node)
				}
			}
			return true
		})
	}
	return n
}

// bitFlags counts the constants of a group that are 1 << iota, or 1 << n with a type: without one
// it is a size.
func bitFlags(group *ast.GenDecl) int {
	n, isFlag := 0, false
	for _, spec := range group.Specs {
		spec := spec.(*ast.ValueSpec)
		if len(spec.Values) > 0 { // else it repeats the one before
			isFlag = false
			for _, value := range spec.Values {
				isFlag = isFlag || shiftsOne(value) && (spec.Type != nil || mentions(value, "iota"))
			}
		}
		for _, id := range spec.Names {
			if isFlag && id.Name != "_" {
				n++
			}
		}
	}
	return n
}

func shiftsOne(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(node ast.Node) bool {
		if shift, ok := node.(*ast.BinaryExpr); ok && shift.Op == token.SHL {
			one, ok := shift.X.(*ast.BasicLit)
			found = found || ok && one.Value == "1"
		}
		return !found
	})
	return found
}
