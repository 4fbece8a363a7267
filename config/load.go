package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"tierway/tokenizer"
)

// maxFile is the size limit of config.yaml in bytes: a thousand workers take about 200 KB.
const maxFile = 4 << 20

const (
	// maxProblems limits the number of reported problems; more would not be read.
	maxProblems = 100
	// maxMessage limits the bytes of a message and of a hint. The list of all keys of a section has 400.
	maxMessage = 1000
)

// PolicyVariable is the environment variable with the policy that replaces those of the file.
const PolicyVariable = "TIERWAY_POLICY"

// Load reads and checks a configuration file. env returns environment variables, like
// os.LookupEnv. Relative paths of SQLite, decision and password files are resolved against the
// directory of the configuration. The error is a Problems, unless the file could not be read. A file that
// causes only warnings is returned; see Warnings.
func Load(path string, env func(string) (string, bool)) (*File, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	f, err := Parse(path, src, env)
	if err != nil {
		return nil, err
	}
	f.resolvePaths(path)
	if env == nil {
		return f, nil
	}
	name, _ := env(PolicyVariable)
	f, err = f.WithPolicy(name)
	if err != nil {
		return nil, fmt.Errorf("%s or --policy: %w", PolicyVariable, err)
	}
	return f, nil
}

// resolvePaths resolves the paths of files that the gateway writes against the directory of
// path.
func (f *File) resolvePaths(path string) {
	f.path = path
	if file, isFile := strings.CutPrefix(f.Store.SQL, "sqlite://"); isFile && file != ":memory:" {
		f.Store.SQL = "sqlite://" + beside(path, file)
	}
	f.Decisions.File = beside(path, f.Decisions.File)
	f.Store.SQLPasswordFile = beside(path, f.Store.SQLPasswordFile)
	f.Store.RedisPasswordFile = beside(path, f.Store.RedisPasswordFile)
	f.Store.SpillDir = beside(path, f.Store.SpillDir)
	f.Learning.Model = beside(path, f.Learning.Model)
	f.Learning.Directory = beside(path, f.Learning.Directory)
}

// Spill returns the directory of the ledger's rows that are not written until a stop; empty for a database in memory.
func (f *File) Spill() string {
	file, isFile := strings.CutPrefix(f.Store.SQL, "sqlite://")
	switch {
	case f.Store.SpillDir != "":
		return f.Store.SpillDir
	case isFile && file == ":memory:":
		return ""
	case isFile:
		return filepath.Dir(file)
	}
	return filepath.Dir(f.path)
}

// beside resolves a relative path against the directory of the configuration at path.
func beside(path, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(filepath.Dir(path), file)
}

// readFile reads at most maxFile+1 bytes of a regular file. It rejects pipes and devices, which
// could block and could not be read again.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory: name a file in it", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file, so a reload could not read it again: use a regular file", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Parse checks a configuration text like Load; name stands for the file in problems. It returns
// either a file or an error, which is a Problems.
func Parse(name string, src []byte, env func(string) (string, bool)) (*File, error) {
	return newDecoder(name, env).load(src)
}

// ParseUntil is Parse until the end of ctx, whose error it returns then.
func ParseUntil(ctx context.Context, name string, src []byte, env func(string) (string, bool)) (*File, error) {
	d := newDecoder(name, env)
	d.ended = ctx.Err
	return d.load(src)
}

func (d *decoder) load(src []byte) (*File, error) {
	f := d.decode(src)
	if err := d.ended(); err != nil {
		return nil, err
	}
	// After a syntax error nothing was read, and every required key would be reported.
	if len(d.places) > 0 || !d.problems.Failed() {
		d.check(f)
	}
	if err := d.ended(); err != nil {
		return nil, err
	}
	f.hash = hashOf(src)
	return d.finish(f)
}

// finish returns the file, or its problems.
func (d *decoder) finish(f *File) (*File, error) {
	f.warnings = d.problems.sorted().merged().bounded()
	if f.warnings.Failed() {
		return nil, f.warnings
	}
	for i := range f.Admin.Keys {
		if f.Admin.Keys[i].Role == "" {
			f.Admin.Keys[i].Role = roleAdmin
		}
	}
	keys := d.keys
	f.tokens = d.tokens
	f.keys = func(variable string) string { return keys[variable] }
	f.expanded = &expansion{values: d.expanded, variables: d.variables}
	f.origins = &origins{written: d.places, raw: d.raw}
	return f, nil
}

// newDecoder returns a decoder; name stands for the source in problems.
func newDecoder(name string, env lookup) *decoder {
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	return &decoder{file: name, env: env, ended: func() error { return nil },
		raw: map[string]string{}, reported: map[string]bool{},
		warned:   map[string]bool{},
		servers:  map[string]canonicalServer{},
		expanded: map[string]string{}, variables: map[string]string{}, keys: map[string]string{},
		tokens: map[string]*tokenizer.Tokenizer{}}
}

// decode reads src over the defaults. It does not check combinations of values.
func (d *decoder) decode(src []byte) *File {
	f := Default()
	root := d.parse(src)
	d.places = make(map[string]place, countNodes(root))
	if root != nil {
		d.value(root, "", key{}, reflect.ValueOf(&f).Elem())
	}
	return &f
}

// countNodes returns the number of mappings' keys and lists' items below a node, without those of aliases. The node
// may be nil.
func countNodes(n *yaml.Node) (count int) {
	if n == nil {
		return 0
	}
	for _, below := range n.Content {
		count += 1 + countNodes(below)
	}
	return count
}

// parse returns the root node of the only document in src; nil if there is none or src is
// invalid.
func (d *decoder) parse(src []byte) *yaml.Node {
	if len(src) > maxFile {
		d.reportNode(&yaml.Node{}, "", fmt.Sprintf("the file is longer than %v", Size(maxFile)), "shorten it")
		return nil
	}
	for at, r := range string(src) {
		if r == utf8.RuneError && !bytes.HasPrefix(src[at:], []byte(string(utf8.RuneError))) {
			d.reportNode(nodeAt(src, at), "", "the file is not UTF-8", "save it as UTF-8")
			return nil
		}
	}
	documents := yaml.NewDecoder(bytes.NewReader(src))
	var document, second yaml.Node
	if err := documents.Decode(&document); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		d.syntax(src, err)
		return nil
	}
	switch err := documents.Decode(&second); {
	case err == nil:
		d.reportNode(&second, "", "a second document starts here", "remove the ---: a configuration is one document")
	case !errors.Is(err, io.EOF):
		d.syntax(src, err)
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil
	}
	return document.Content[0]
}

// nodeAt returns a node at a byte of the text.
func nodeAt(src []byte, at int) *yaml.Node {
	return &yaml.Node{Line: bytes.Count(src[:at], []byte("\n")) + 1,
		Column: utf8.RuneCount(src[bytes.LastIndexByte(src[:at], '\n')+1:at]) + 1}
}

// variableText matches ${NAME} and ${NAME:-default} in a line.
var variableText = regexp.MustCompile(`\$\{[^{}\n]*\}`)

const (
	// maxVariables bounds the variables of an invalid file that are checked: each costs one more reading of the file.
	maxVariables = 20
	// maxReadAgain is the longest invalid file in bytes whose variables are checked: 41 readings take half a second.
	maxReadAgain = 256 << 10
)

// unquotedVariables reports each ${NAME} for which the file is invalid YAML, and whether there is one. Inside { } and
// [ ], its brace begins a section unless the value has quotes.
func (d *decoder) unquotedVariables(src []byte) (found bool) {
	if len(src) > maxReadAgain {
		return false
	}
	all := variableText.FindAllIndex(src, maxVariables)
	for i := range all {
		others := bytes.Clone(src) // with plain text in place of the other variables
		for k, at := range all {
			if k != i {
				copy(others[at[0]:at[1]], bytes.Repeat([]byte("x"), at[1]-at[0]))
			}
		}
		if yaml.Unmarshal(others, new(yaml.Node)) == nil {
			continue
		}
		from := all[i][0]
		copy(others[from:all[i][1]], bytes.Repeat([]byte("x"), all[i][1]-from))
		if yaml.Unmarshal(others, new(yaml.Node)) != nil {
			return false // the file has another fault
		}
		name, _, hasDefault := strings.Cut(strings.Trim(string(src[from:all[i][1]]), "${}"), ":-")
		name = "${" + shorten(name) + "}"
		if hasDefault {
			name = strings.TrimSuffix(name, "}") + ":-…}"
		}
		d.reportNode(nodeAt(src, from), "", name+" needs quotes inside { } and [ ]",
			fmt.Sprintf("write \"%s\"", name))
		found = true
	}
	return found
}

// syntaxLine matches the line number in a message of the YAML parser.
var syntaxLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports an error of the YAML parser at its line or, if a tab is the cause, at the tab.
func (d *decoder) syntax(src []byte, err error) {
	text := err.Error()
	match := syntaxLine.FindStringSubmatch(text)
	message, line := "invalid YAML: "+shorten(text), 1
	if match != nil {
		message = "invalid YAML: " + shorten(text[len(match[0]):])
		if n, err := strconv.Atoi(match[1]); err == nil {
			line = n
		}
	}
	lines := splitLines(string(src))
	// The parser counts lines from 0 in some errors.
	for at := max(line-1, 1); at <= min(line+1, len(lines)); at++ {
		text := lines[at-1]
		indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
			d.reportNode(&yaml.Node{Line: at, Column: tab + 1}, "", "a tab in the indentation", "indent with spaces")
			return
		}
	}
	if d.unquotedVariables(src) {
		return
	}
	line = min(max(line, 1), len(lines))
	column := 1 + len(lines[line-1]) - len(strings.TrimLeft(lines[line-1], " "))
	d.reportNode(&yaml.Node{Line: line, Column: column}, "", message, "")
}
