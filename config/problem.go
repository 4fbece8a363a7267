package config

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a configuration, or, with Warning
// set, one that deserves a look. Neither Message nor Hint ever holds a value
// that came from the environment or that stands where a secret would.
type Problem struct {
	File    string `json:"file,omitempty"` // as given to Load or Parse; "command line" for FromFlags
	Line    int    `json:"line" doc:"From 1; 0: nowhere in the file."`
	Column  int    `json:"column"`         // in characters, from 1; 0 where there is no source
	Path    string `json:"path,omitempty"` // dotted, such as tiers[0].workers[1].weight; "" for the whole file
	Message string `json:"message"`        // the field's value and what is wrong with it
	Hint    string `json:"hint,omitempty"` // the way out; may be empty
	Warning bool   `json:"-"`              // the configuration works all the same

	hide bool // the source from this position on may hold a secret
}

// String returns the problem on one line: where, what and the way out.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Problems is everything that is wrong with a configuration, in the order of
// the source. As an error it holds at least one problem that is no warning.
type Problems []Problem

// Error returns one line a problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Failed reports whether one of the problems is more than a warning.
func (ps Problems) Failed() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
}

// Format writes every problem to w with the line of src that it stands on and
// a caret under its column. src is the text that was parsed; without it the
// problems stand alone. What may be a secret is shown as ***.
func (ps Problems) Format(w io.Writer, src []byte) error {
	out := bufio.NewWriter(w)
	lines := maskedLines(ps, src)
	for i, p := range ps {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString(p.String() + "\n")
		writeSnippet(out, p, lines)
	}
	return out.Flush()
}

// writeSnippet writes the line before the problem, its own and the caret.
func writeSnippet(out *bufio.Writer, p Problem, lines []string) {
	if p.Line < 1 || p.Line > len(lines) {
		return
	}
	width := max(3, len(strconv.Itoa(p.Line)))
	if p.Line > 1 && strings.TrimSpace(lines[p.Line-2]) != "" {
		fmt.Fprintf(out, "  %*d | %s\n", width, p.Line-1, lines[p.Line-2])
	}
	line := lines[p.Line-1]
	fmt.Fprintf(out, "> %*d | %s\n", width, p.Line, line)
	column := min(p.Column, len([]rune(line))+1)
	fmt.Fprintf(out, "  %*s   %s^\n", width, "", strings.Repeat(" ", max(0, column-1)))
}

// maskedLines splits src into printable lines. If any problem hides its value,
// that value is masked, and so is every line after it up to the next that looks
// like a key: a value may go on over several lines.
func maskedLines(ps Problems, src []byte) []string {
	if len(src) == 0 {
		return nil
	}
	hidden := map[int]int{} // line → first column to hide
	for _, p := range ps {
		if at, ok := hidden[p.Line]; p.hide && (!ok || p.Column < at) {
			hidden[p.Line] = p.Column
		}
	}
	var lines []string
	masking := false
	for i, raw := range splitLines(string(src)) {
		line := storeURL.ReplaceAllString(printable(raw), "$1***")
		at, starts := hidden[i+1]
		switch {
		case starts:
			runes := []rune(line)
			line = string(runes[:min(max(at-1, 0), len(runes))]) + "***"
			masking = true
		case masking && looksLikeKey(line):
			masking = false
		case masking:
			line = "***"
		}
		lines = append(lines, line)
	}
	return lines
}

// storeURL finds the URL of a database or of Redis, which may hold a password,
// and all behind it: what ends it, a quote or a brace, may stand in the password.
var storeURL = regexp.MustCompile(`((?:postgres(?:ql)?|rediss?(?:\+[a-z]+)?|mysql|mongodb)://).*`)

// splitLines splits at all that YAML takes for the end of a line, so that lines
// are counted as its parser counts them.
func splitLines(src string) []string {
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	return strings.Split(ends.Replace(src), "\n")
}

// looksLikeKey reports whether a line starts a new key or list item.
func looksLikeKey(line string) bool {
	word, _, found := strings.Cut(strings.TrimLeft(line, " -{"), ":")
	return found && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// printable replaces tabs by one space, so that the caret stays below its
// column, and drops what a terminal would act upon.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !strconv.IsPrint(r):
			return '?'
		}
		return r
	}, line)
}

// sorted orders problems by line and column, keeping the order of those on the
// same place, and drops repeats.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return slices.Compact(ps)
}
