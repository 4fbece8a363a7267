package checks

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
)

// pureCalls reports code in pure packages that reads the clock, waits or starts goroutines.
func pureCalls(t *tree) (violations []string) {
	clock := []string{"Now", "Since", "Until", "After", "Sleep", "Tick", "NewTimer", "NewTicker", "AfterFunc"}
	for _, name := range sorted(t.folders) {
		if !slices.Contains(pure(), name) {
			continue
		}
		f := t.folders[name]
		f.inspect(func(n ast.Node) {
			if startsGoroutine(n) {
				violations = append(violations, fmt.Sprintf("%s: %s is pure and starts a goroutine", t.at(n), name))
			}
			if s, ok := n.(*ast.SelectorExpr); ok && f.imported(s.X) == "time" && slices.Contains(clock, s.Sel.Name) {
				violations = append(violations, fmt.Sprintf("%s: %s is pure and uses time.%s", t.at(s), name, s.Sel.Name))
			}
		})
		for _, file := range f.files {
			for _, spec := range file.Imports {
				if spec.Name != nil && spec.Name.Name == "." {
					violations = append(violations, fmt.Sprintf("%s: %s is pure and hides what it uses by a dot import", t.at(spec),
						name))
				}
			}
		}
	}
	return violations
}

// inspect calls visit for each node of the folder's files.
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
