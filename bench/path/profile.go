package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
)

// block is a range of statements that are executed together, as positions line.column.
type block struct{ fromLine, fromColumn, toLine, toColumn int }

// contains reports whether a position is in the block.
func (b block) contains(line, column int) bool {
	return (line > b.fromLine || line == b.fromLine && column >= b.fromColumn) &&
		(line < b.toLine || line == b.toLine && column <= b.toColumn)
}

// profile has how often each block was executed, by file of this module.
type profile map[string]map[block]float64

// readProfile reads a profile of go test.
func readProfile(name string) (profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	p := profile{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		file, rest, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "tierway/"), ":")
		if !ok || file == "mode" {
			continue
		}
		var b block
		var statements int
		var times float64
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %g", &b.fromLine, &b.fromColumn, &b.toLine, &b.toColumn, &statements,
			&times); err != nil {
			return nil, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		if p[file] == nil {
			p[file] = map[block]float64{}
		}
		p[file][b] = times
	}
	return p, lines.Err()
}

// perRequest returns the executions per request beyond those of a smaller run.
func (p profile) perRequest(smaller profile, requests float64) profile {
	out := profile{}
	for file, blocks := range p {
		out[file] = map[block]float64{}
		for b, times := range blocks {
			out[file][b] = (times - smaller[file][b]) / requests
		}
	}
	return out
}

// at returns how often the innermost block at a position was executed.
func (p profile) at(pos token.Position) float64 {
	var inner block
	for b := range p[pos.Filename] {
		if b.contains(pos.Line, pos.Column) && (inner == block{} || inner.contains(b.fromLine, b.fromColumn)) {
			inner = b
		}
	}
	return p[pos.Filename][inner]
}

// place is a function or a lock with its executions per request.
type place struct {
	file  string
	line  int
	name  string
	times float64
}

// counts are the executed functions and locks.
type counts struct{ functions, locks []place }

// executed finds the functions and the locks that a profile counts. A function literal is a part of its function.
func executed(p profile) (c counts, err error) {
	set := token.NewFileSet()
	for _, file := range slices.Sorted(maps.Keys(p)) {
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			return c, err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || len(f.Body.List) == 0 {
				continue
			}
			add(&c.functions, p, set.Position(f.Body.List[0].Pos()), f.Name.Name)
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && isLock(call) {
					add(&c.locks, p, set.Position(call.Pos()), "")
				}
				return true
			})
		}
	}
	return c, nil
}

// add adds a place that is executed.
func add(to *[]place, p profile, at token.Position, name string) {
	if times := p.at(at); times >= rarest {
		*to = append(*to, place{at.Filename, at.Line, name, times})
	}
}

// isLock reports whether a call locks a mutex.
func isLock(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && len(call.Args) == 0 && slices.Contains([]string{"Lock", "RLock", "TryLock", "TryRLock"}, f.Sel.Name)
}
