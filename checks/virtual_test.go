package checks

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// virtualTime knows which code of a package's tests runs only in bubbles of testing/synctest:
//
//   - function literals and functions that are passed to synctest.Test or to a wrapper, which is a function
//     that passes its own parameter on to synctest.Test,
//   - function literals in a map or list, inside a function that starts bubbles,
//   - functions and methods that only such code refers to, and function literals in fields that only such code
//     reads. If no code names a method, each use of its type counts as a reference, as for a method of an
//     http.Handler.
//
// Code of benchmarks, and of tests of the binary, also counts as code of bubbles.
type virtualTime struct {
	p        *testPackage
	bubbles  map[string][]string
	wrappers map[types.Object]bool
	starts   map[types.Object]bool // declarations that start a bubble
	exempt   map[types.Object]bool // functions for which isExempt holds
	owners   map[ast.Decl]types.Object
	real     map[types.Object]bool // declarations that also run outside of a bubble
}

// nodePath is the nodes from a file to one of its nodes, which is the last.
type nodePath []ast.Node

// bubbles returns the functions of other packages that run a function in a bubble.
func bubbles() map[string][]string {
	return map[string][]string{"testing/synctest": {"Test"}, module + "/e2e/bubble": {"Test", "TestAlone", "Run"}}
}

func newVirtualTime(p *testPackage, bubbles map[string][]string) *virtualTime {
	v := &virtualTime{p: p, bubbles: bubbles, wrappers: map[types.Object]bool{}, starts: map[types.Object]bool{},
		exempt: map[types.Object]bool{}, owners: map[ast.Decl]types.Object{}, real: map[types.Object]bool{}}
	for _, file := range p.files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				v.owners[d] = p.info.Defs[f.Name]
				v.exempt[v.owners[d]] = isExempt(p, f)
			}
		}
	}
	for found := true; found; {
		found = v.findWrappers()
	}
	references := v.references()
	for owner, all := range references {
		_, isFunction := owner.(*types.Func)
		calls := len(all) == 0 || isFunction && isTestFunction(owner.Name())
		if calls && !v.exempt[owner] {
			v.real[owner] = true // the testing package calls it
		}
	}
	for changed := true; changed; {
		changed = false
		for owner, all := range references {
			for _, reference := range all {
				if !v.real[owner] && !v.covers(reference) {
					v.real[owner], changed = true, true
				}
			}
		}
	}
	return v
}

// isTestFunction reports whether the testing package calls a function of this name, which other tests may call too.
func isTestFunction(name string) bool {
	rest, ok := strings.CutPrefix(name, "Test")
	return ok && rest != "" && rest[0] >= 'A' && rest[0] <= 'Z'
}

// isExempt reports whether the rules of virtual time exempt a function: a benchmark, a smoke test, or a test whose
// first statement is rig.RequireBinary or backends.RequireSoak.
func isExempt(p *testPackage, f *ast.FuncDecl) bool {
	if strings.HasPrefix(f.Name.Name, "Benchmark") || strings.HasPrefix(f.Name.Name, "TestSmoke") {
		return true
	}
	if f.Body == nil || len(f.Body.List) == 0 {
		return false
	}
	first, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := first.X.(*ast.CallExpr)
	return ok && (p.used(call.Fun, module+"/e2e/rig") == "RequireBinary" ||
		p.used(call.Fun, module+"/e2e/backends") == "RequireSoak")
}

// reached returns the test functions whose names begin with prefix, and all functions that these name, directly or
// through others.
func (v *virtualTime) reached(prefix string) map[types.Object]bool {
	names := map[types.Object][]types.Object{}
	for d, owner := range v.owners {
		ast.Inspect(d, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if f, ok := v.p.info.Uses[id].(*types.Func); ok {
					names[owner] = append(names[owner], f.Origin())
				}
			}
			return true
		})
	}
	reached := map[types.Object]bool{}
	var add func(types.Object)
	add = func(f types.Object) {
		if !reached[f] {
			reached[f] = true
			for _, next := range names[f] {
				add(next)
			}
		}
	}
	for _, owner := range v.owners {
		if owner != nil && strings.HasPrefix(owner.Name(), prefix) {
			add(owner)
		}
	}
	return reached
}

// findWrappers adds functions that start bubbles, and reports whether it found a new one.
func (v *virtualTime) findWrappers() (found bool) {
	for name, file := range v.p.files {
		if !isTest(name) {
			continue
		}
		visit(file, func(n ast.Node, parents []ast.Node) {
			call, ok := n.(*ast.CallExpr)
			if !ok || !v.isBubble(call.Fun) {
				return
			}
			f, ok := parents[min(1, len(parents)-1)].(*ast.FuncDecl)
			if !ok {
				return
			}
			owner := v.owners[f]
			v.starts[owner] = true
			for _, parameter := range f.Type.Params.List {
				if _, ok := parameter.Type.(*ast.FuncType); ok && !v.wrappers[owner] {
					v.wrappers[owner], found = true, true
				}
			}
		})
	}
	return found
}

// isBubble reports whether a called expression runs a function in a bubble.
func (v *virtualTime) isBubble(called ast.Expr) bool {
	for from, names := range v.bubbles {
		for _, name := range names {
			if v.p.used(called, from) == name {
				return true
			}
		}
	}
	switch called := called.(type) {
	case *ast.Ident:
		return v.wrappers[v.p.info.Uses[called]]
	case *ast.SelectorExpr:
		return v.wrappers[v.p.info.Uses[called.Sel]]
	}
	return false
}

// references returns, for each function and method of the package's tests, the places that refer to it.
func (v *virtualTime) references() map[types.Object][]nodePath {
	all := map[types.Object][]nodePath{}
	receivers := map[types.Object]types.Object{} // of methods
	for d, owner := range v.owners {
		if !isTest(v.p.fset.Position(d.Pos()).Filename) {
			continue
		}
		all[owner] = nil
		if f := d.(*ast.FuncDecl); f.Recv != nil && len(f.Recv.List) == 1 {
			receivers[owner] = v.receiver(f.Recv.List[0].Type)
		}
	}
	for _, object := range v.p.info.Defs {
		if field, ok := object.(*types.Var); ok && field.IsField() {
			if _, isFunction := field.Type().Underlying().(*types.Signature); isFunction {
				all[field] = nil
			}
		}
	}
	ofTypes := map[types.Object][]nodePath{}
	for name, file := range v.p.files {
		if !isTest(name) {
			continue
		}
		visit(file, func(n ast.Node, parents []ast.Node) {
			id, ok := n.(*ast.Ident)
			if !ok {
				return
			}
			r := append(slices.Clone(parents), n)
			switch to := v.p.info.Uses[id].(type) {
			case *types.Func:
				to = to.Origin()
				if _, ours := all[to]; ours {
					all[to] = append(all[to], r)
				}
			case *types.Var:
				_, ours := all[to.Origin()]
				if s, ok := parents[len(parents)-1].(*ast.SelectorExpr); ours && ok && s.Sel == id {
					all[to.Origin()] = append(all[to.Origin()], r)
				}
			case *types.TypeName:
				if !inSignature(parents) {
					ofTypes[to] = append(ofTypes[to], r)
				}
			}
		})
	}
	for method, receiver := range receivers {
		if len(all[method]) == 0 {
			all[method] = ofTypes[receiver]
		}
	}
	return all
}

// receiver returns the type of a receiver.
func (v *virtualTime) receiver(e ast.Expr) types.Object {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return v.p.info.Uses[x]
		default:
			return nil
		}
	}
}

// inSignature reports whether a name stands in the signature of a function, in the declaration of a type or in
// an assertion such as var _ io.Writer = T{}.
func inSignature(parents []ast.Node) bool {
	for _, n := range parents {
		switch n := n.(type) {
		case *ast.FuncType, *ast.FieldList, *ast.TypeSpec:
			return true
		case *ast.ValueSpec:
			return n.Names[0].Name == "_"
		case *ast.BlockStmt:
			return false
		}
	}
	return false
}

// covers reports whether the last node of a path from its file runs only in bubbles.
func (v *virtualTime) covers(nodes nodePath) bool {
	if v.inBubble(nodes) {
		return true
	}
	owner := v.owner(nodes)
	for i, n := range nodes {
		if n, ok := n.(*ast.CompositeLit); ok {
			if field := v.field(n, nodes[i+1:]); field != nil && !v.real[field] {
				return true
			}
			if _, isStruct := v.structOf(n); v.starts[owner] && !isStruct && within[*ast.FuncLit](nodes[i+1:]) {
				return true
			}
		}
	}
	return owner != nil && !v.real[owner]
}

// owner returns the function that declares the last node of a path, or nil.
func (v *virtualTime) owner(nodes nodePath) types.Object {
	for _, n := range nodes {
		if f, ok := n.(*ast.FuncDecl); ok {
			return v.owners[f]
		}
	}
	return nil
}

// inBubble reports whether the last node of a path is in an argument of a function that starts a bubble.
func (v *virtualTime) inBubble(nodes nodePath) bool {
	for i, n := range nodes[:len(nodes)-1] {
		if call, ok := n.(*ast.CallExpr); ok && nodes[i+1] != call.Fun && v.isBubble(call.Fun) {
			return true
		}
	}
	return false
}

// field returns the field whose value is a function literal, if rest leads into one from a literal of a struct.
func (v *virtualTime) field(of *ast.CompositeLit, rest []ast.Node) types.Object {
	fields, ok := v.structOf(of)
	if !ok || len(rest) == 0 {
		return nil
	}
	value, key := rest[0], ast.Node(nil)
	if pair, ok := value.(*ast.KeyValueExpr); ok && len(rest) > 1 {
		value, key = rest[1], pair.Key
	}
	if _, ok := value.(*ast.FuncLit); !ok {
		return nil
	}
	if name, ok := key.(*ast.Ident); ok {
		if field, ok := v.p.info.Uses[name].(*types.Var); ok {
			return field.Origin()
		}
		return nil
	}
	i := slices.IndexFunc(of.Elts, func(e ast.Expr) bool { return e == value })
	if i < 0 || i >= fields.NumFields() {
		return nil
	}
	return fields.Field(i).Origin()
}

// structOf returns the type of a literal if it is a struct.
func (v *virtualTime) structOf(literal *ast.CompositeLit) (*types.Struct, bool) {
	t := v.p.info.Types[literal].Type
	if t == nil {
		return nil, false
	}
	if pointer, ok := t.Underlying().(*types.Pointer); ok { // {…} in a []*T
		t = pointer.Elem()
	}
	s, ok := t.Underlying().(*types.Struct)
	return s, ok
}

// within reports whether one of the nodes is a T.
func within[T ast.Node](nodes []ast.Node) bool {
	for _, n := range nodes {
		if _, ok := n.(T); ok {
			return true
		}
	}
	return false
}
