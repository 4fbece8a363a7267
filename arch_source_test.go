package tierway

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

func pureImports(t *tree) (complaints []string) {
	t.imports(func(from, at, imported string) {
		if !slices.Contains(pure(), from) {
			return
		}
		for _, root := range []string{"os", "net/http", "log/slog", "math/rand", "crypto/rand"} {
			if under(imported, root) {
				complaints = append(complaints, fmt.Sprintf("%s: %s is pure and imports %s", at, from, imported))
			}
		}
		if imported == "net" {
			complaints = append(complaints, fmt.Sprintf("%s: %s is pure and imports net", at, from))
		}
	})
	return complaints
}

// pureCalls finds what reads the clock, waits, or goes on by itself.
func pureCalls(t *tree) (complaints []string) {
	clock := []string{"Now", "Since", "Until", "After", "Sleep", "Tick", "NewTimer", "NewTicker", "AfterFunc"}
	for _, name := range sorted(t.folders) {
		if !slices.Contains(pure(), name) {
			continue
		}
		f := t.folders[name]
		f.inspect(func(n ast.Node) {
			if startsGoroutine(n) {
				complaints = append(complaints, fmt.Sprintf("%s: %s is pure and starts a goroutine", t.at(n), name))
			}
			if s, ok := n.(*ast.SelectorExpr); ok && f.imported(s.X) == "time" && slices.Contains(clock, s.Sel.Name) {
				complaints = append(complaints, fmt.Sprintf("%s: %s is pure and uses time.%s", t.at(s), name, s.Sel.Name))
			}
		})
		for _, file := range f.files {
			for _, spec := range file.Imports {
				if spec.Name != nil && spec.Name.Name == "." {
					complaints = append(complaints, fmt.Sprintf("%s: %s is pure and hides what it uses by a dot import", t.at(spec), name))
				}
			}
		}
	}
	return complaints
}

// inspect calls f for each node of the folder.
func (f *folder) inspect(visit func(ast.Node)) {
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				visit(n)
			}
			return true
		})
	}
}

// imported returns the import path that an expression names, or "".
func (f *folder) imported(e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		if p, ok := f.info.Uses[id].(*types.PkgName); ok {
			return p.Imported().Path()
		}
	}
	return ""
}

func noInit(t *tree) (complaints []string) {
	for _, name := range sorted(t.folders) {
		t.folders[name].inspect(func(n ast.Node) {
			if d, ok := n.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
				complaints = append(complaints, fmt.Sprintf("%s: no package has an init", t.at(d)))
			}
		})
	}
	return complaints
}

func onePackageComment(t *tree) (complaints []string) {
	for _, name := range sorted(t.folders) {
		var with []string
		for _, file := range t.folders[name].files {
			if strings.TrimSpace(file.Doc.Text()) != "" {
				with = append(with, t.fset.Position(file.Pos()).Filename)
			}
		}
		switch len(with) {
		case 0:
			complaints = append(complaints, fmt.Sprintf("%s: the package has no comment", name))
		case 1:
		default:
			complaints = append(complaints, fmt.Sprintf("%s: the package has a comment in %s", name, strings.Join(with, " and ")))
		}
	}
	return complaints
}

// noState finds package variables that are more than errors, embedded files,
// tables that nobody writes, and proofs that a type has an interface.
func noState(t *tree) (complaints []string) {
	writes := t.writes()
	for _, name := range sorted(t.folders) {
		f := t.folders[name]
		for _, file := range f.files {
			for _, d := range file.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, s := range g.Specs {
					spec := s.(*ast.ValueSpec)
					if embedded(g.Doc) || embedded(spec.Doc) {
						continue
					}
					for i, id := range spec.Names {
						var value ast.Expr
						if i < len(spec.Values) {
							value = spec.Values[i]
						}
						if id.Name == "_" || f.isError(id, value) {
							continue
						}
						if !f.isTable(id, value) {
							complaints = append(complaints, fmt.Sprintf("%s: %s.%s is a package variable and neither an error nor a table", t.at(id), name, id.Name))
						} else if at, written := writes[name+"."+id.Name]; written {
							complaints = append(complaints, fmt.Sprintf("%s: %s.%s is a table and is written at %s", t.at(id), name, id.Name, at))
						}
					}
				}
			}
		}
	}
	return complaints
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// isError reports whether a variable is an error by how it is made, or by its
// name where its type is the package's own.
func (f *folder) isError(id *ast.Ident, value ast.Expr) bool {
	if value == nil {
		return false
	}
	if call, ok := value.(*ast.CallExpr); ok {
		if s, ok := call.Fun.(*ast.SelectorExpr); ok {
			made := f.imported(s.X) + "." + s.Sel.Name
			return made == "errors.New" || made == "fmt.Errorf"
		}
	}
	return strings.HasPrefix(id.Name, "Err") || strings.HasPrefix(id.Name, "err")
}

// isTable reports whether a variable is made to be read: a literal, a regular
// expression, or an array, map or slice that is filled where it stands. What
// sync and sync/atomic declare is made to be written.
func (f *folder) isTable(id *ast.Ident, value ast.Expr) bool {
	switch v := value.(type) {
	case nil:
		return false
	case *ast.CompositeLit:
		s, ok := v.Type.(*ast.SelectorExpr)
		return !ok || !under(f.imported(s.X), "sync")
	case *ast.CallExpr:
		if s, ok := v.Fun.(*ast.SelectorExpr); ok && f.imported(s.X) == "regexp" {
			return s.Sel.Name == "MustCompile"
		}
	}
	if o := f.info.Defs[id]; o != nil {
		switch o.Type().Underlying().(type) {
		case *types.Array, *types.Map, *types.Slice:
			return true
		}
	}
	return false
}

// writes finds where package variables are written, from any package, by
// "folder.name": assigned to, whole or in part, counted up, ranged into, their
// address taken, handed to delete, clear, copy or append, or given to a method
// that may change them.
func (t *tree) writes() map[string]string {
	found := map[string]string{}
	for _, name := range sorted(t.folders) {
		f := t.folders[name]
		note := func(e ast.Expr) {
			if v := f.variable(e); v != "" {
				found[v] = t.at(e)
			}
		}
		f.inspect(func(n ast.Node) {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, e := range n.Lhs {
						note(e)
					}
				}
			case *ast.IncDecStmt:
				note(n.X)
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					note(n.Key)
					note(n.Value)
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					note(n.X)
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 {
					if b, ok := f.info.Uses[id].(*types.Builtin); ok && slices.Contains([]string{"delete", "clear", "copy", "append"}, b.Name()) {
						note(n.Args[0])
					}
				}
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && f.byPointer(s.Sel) {
					note(s.X)
				}
			}
		})
	}
	return found
}

// byPointer reports whether a selector is a method of this package that gets a
// pointer to what it is called on.
func (f *folder) byPointer(sel *ast.Ident) bool {
	m, ok := f.info.Uses[sel].(*types.Func)
	if !ok || m.Signature().Recv() == nil {
		return false
	}
	_, pointer := m.Signature().Recv().Type().(*types.Pointer)
	return pointer
}

// variable returns the package variable of the house at the root of an
// expression such as x, x[i].y, *x or p.x, as "folder.name", or "".
func (f *folder) variable(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		if v, ok := f.info.Uses[e].(*types.Var); ok && f.types != nil && v.Parent() == f.types.Scope() {
			return f.name + "." + v.Name()
		}
	case *ast.SelectorExpr:
		if p := f.imported(e.X); p != "" {
			if at, ok := own(p); ok {
				return at + "." + e.Sel.Name
			}
			return ""
		}
		return f.variable(e.X)
	case *ast.IndexExpr:
		return f.variable(e.X)
	case *ast.SliceExpr:
		return f.variable(e.X)
	case *ast.StarExpr:
		return f.variable(e.X)
	case *ast.ParenExpr:
		return f.variable(e.X)
	}
	return ""
}
