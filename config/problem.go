package config

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Problem is an error in a configuration or, with Warning set, a valid but doubtful setting.
// Neither Message nor Hint contains a value from the environment or from the place of a secret.
type Problem struct {
	File    string `json:"file,omitempty"` // as given to Load or Parse; "command line" for FromFlags
	Line    int    `json:"line" doc:"Line number from 1; 0: no position in the file."`
	Column  int    `json:"column"`         // in characters, from 1; 0 without a source
	Path    string `json:"path,omitempty"` // dotted, such as tiers[0].workers[1].weight; "" for the whole file
	Message string `json:"message"`        // the value and what is wrong with it
	Hint    string `json:"hint,omitempty"` // how to correct it; may be empty
	Warning bool   `json:"-"`              // the configuration is valid

	hide bool // the source may contain a secret from this position on
}

// String returns the problem on one line: position, path, message and hint.
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

// Problems are the problems of a configuration in source order. As an error, at least one of
// them is not a warning.
type Problems []Problem

// Error returns one line per problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Failed reports whether at least one problem is not a warning.
func (ps Problems) Failed() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
}

// Format writes every problem to w with its source line and a caret under its column. src is
// the parsed text; without it, no lines are shown. Possible secrets are shown as ***.
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

// maskedLines splits src into printable lines. It masks the values of problems with hide set,
// and the lines after them up to the next key, because a value may continue over several lines.
// It masks headers of workers, and values of keys that are named like secrets, up to the next key that is not indented
// further.
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
	masking, indent := false, 0
	for i, raw := range splitLines(string(src)) {
		line := storeURL.ReplaceAllString(printable(raw), "$1***")
		own := len(line) - len(strings.TrimLeft(line, " "))
		if masking && looksLikeKey(line) && own <= indent {
			masking = false
		}
		secret := upToShownSecret(line)
		at, starts := hidden[i+1]
		if masking {
			line = "***"
		} else if starts || secret != "" {
			runes := []rune(line)
			if starts {
				line, indent = string(runes[:min(max(at-1, 0), len(runes))])+"***", math.MaxInt
			}
			if secret != "" {
				line = secret[:min(len(secret), len(line))]
				line, indent = strings.TrimSuffix(line, "***")+" ***", own
			}
			masking = true
		}
		lines = append(lines, line)
	}
	return lines
}

// upToShownSecret returns a line up to the end of its first key that is named like a secret; "" without one. A value
// that is one variable or a digest is no secret.
func upToShownSecret(line string) string {
	for _, m := range assignment.FindAllStringSubmatchIndex(line, -1) {
		if namesSecret(line[m[2]:m[3]]) && !variableOrDigest.MatchString(line[m[1]:]) {
			return line[:m[1]]
		}
	}
	return ""
}

// variableOrDigest matches the rest of a line after a key, if the value is a variable or a digest.
var variableOrDigest = regexp.MustCompile(
	`^\s*["']?(?:\$\{[A-Za-z_][A-Za-z0-9_]*\}|[0-9a-fA-F]{64})["']?\s*(?:[,}\]#]|$)`)

// storeURL matches the URL of a database or Redis and everything after it on the line. The
// password may contain any delimiter, such as a quote or brace.
var storeURL = regexp.MustCompile(`((?:postgres(?:ql)?|rediss?(?:\+[a-z]+)?|mysql|mongodb)://).*`)

// splitLines splits at all line ends of YAML, so that lines are counted as by its parser.
func splitLines(src string) []string {
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	return strings.Split(ends.Replace(src), "\n")
}

// looksLikeKey reports whether a line starts a new key or list item.
func looksLikeKey(line string) bool {
	word, _, found := strings.Cut(strings.TrimLeft(line, " -{"), ":")
	return found && word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// printable replaces tabs by one space, to keep the caret under its column, and control
// characters by question marks.
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

// sorted returns the problems by line and column without duplicates. The order at one position
// is kept.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return slices.Compact(ps)
}

// maxPlaces is the number of further places that a warning lists.
const maxPlaces = 5

// listEntry matches the index of an entry of a list. Tiers and pools have the same keys.
var listEntry = regexp.MustCompile(`(?:^(?:tiers|pools))?\[\d+\]`)

// merged returns the problems with one warning in place of equal ones at the same key of several entries, such as all
// tiers. It lists the further places after the first one.
func (ps Problems) merged() Problems {
	type words struct{ key, message, hint string }
	kept, first, others := Problems{}, map[words]int{}, map[int][]string{}
	for _, p := range ps {
		w := words{listEntry.ReplaceAllString(p.Path, "[]"), p.Message, p.Hint}
		if i, again := first[w]; again && p.Warning {
			others[i] = append(others[i], p.Path)
			continue
		}
		if p.Warning {
			first[w] = len(kept)
		}
		kept = append(kept, p)
	}
	for i, paths := range others {
		list := strings.Join(paths[:min(len(paths), maxPlaces)], ", ")
		if more := len(paths) - maxPlaces; more > 0 {
			list += fmt.Sprintf(" and %d more places", more)
		}
		kept[i].Message += "; also at " + list
	}
	return kept
}

// bounded returns at most maxProblems of the problems, in the same order, and one that counts the others. Errors
// displace warnings. Long messages and hints are cut.
func (ps Problems) bounded() Problems {
	for i := range ps {
		ps[i].Message, ps[i].Hint = cut(ps[i].Message, maxMessage), cut(ps[i].Hint, maxMessage)
	}
	errs := 0
	for _, p := range ps {
		if !p.Warning {
			errs++
		}
	}
	more := len(ps) - maxProblems
	if more <= 0 {
		return ps
	}
	rest := Problem{File: ps[0].File, Message: fmt.Sprintf("%d more problems", more), Warning: errs == 0}
	errs, warnings := min(errs, maxProblems), max(0, maxProblems-errs)
	kept := make(Problems, 0, maxProblems+1)
	for _, p := range ps {
		left := &errs
		if p.Warning {
			left = &warnings
		}
		if *left > 0 {
			*left--
			kept = append(kept, p)
		}
	}
	return append(kept, rest)
}

// cut returns the beginning of a text that is longer than maxBytes.
func cut(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "") + "…"
}
