package config

import (
	"bytes"
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
)

// maxFile bounds config.yaml in bytes: a thousand workers take about 200 KB.
const maxFile = 4 << 20

// maxProblems bounds what is reported: nobody reads on after a thousand.
const maxProblems = 1000

// Load reads a configuration file and checks all of it. env finds environment
// variables, as os.LookupEnv does. A SQLite file and a file of decisions of a relative
// path lie beside the configuration, wherever the program was started. The error is a
// Problems, unless the file could not be read at all. A file with nothing but warnings is returned;
// they are in its Warnings.
func Load(path string, env func(string) (string, bool)) (*File, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	f, err := Parse(path, src, env)
	if err != nil {
		return nil, err
	}
	f.settle(path)
	return f, nil
}

// settle takes relative paths of files that the program writes from the folder of
// the configuration at path.
func (f *File) settle(path string) {
	f.path = path
	if file, isFile := strings.CutPrefix(f.Store.SQL, "sqlite://"); isFile && file != ":memory:" {
		f.Store.SQL = "sqlite://" + beside(path, file)
	}
	f.Decisions.File = beside(path, f.Decisions.File)
}

// beside returns a relative path as taken from the folder of the configuration at path.
func beside(path, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(filepath.Dir(path), file)
}

// readFile reads at most maxFile and one byte of a regular file. It waits for no
// writer: what is no regular file could not be read again.
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

// Parse is Load for a text that was read already; name stands for it in
// problems. It returns a file or an error, which is a Problems, never both.
func Parse(name string, src []byte, env func(string) (string, bool)) (*File, error) {
	return newDecoder(name, env).load(src)
}

func (d *decoder) load(src []byte) (*File, error) {
	f := d.decode(src)
	// After a syntax error nothing was read, and all would be said to be missing.
	if len(d.places) > 0 || !d.problems.Failed() {
		d.check(f)
	}
	f.hash = hashOf(src)
	return d.finish(f)
}

// finish returns the file, or all that is wrong with it.
func (d *decoder) finish(f *File) (*File, error) {
	f.warnings = d.problems.sorted()
	if more := len(f.warnings) - maxProblems; more > 0 {
		f.warnings = append(f.warnings[:maxProblems], Problem{File: d.file, Message: fmt.Sprintf("%d more problems", more)})
	}
	if f.warnings.Failed() {
		return nil, f.warnings
	}
	for i := range f.Admin.Keys {
		if f.Admin.Keys[i].Role == "" {
			f.Admin.Keys[i].Role = roleAdmin
		}
	}
	keys := d.keys
	f.keys = func(variable string) string { return keys[variable] }
	f.expanded = &expansion{values: d.expanded, variables: d.variables}
	return f, nil
}

// newDecoder makes a decoder for a source that problems call name.
func newDecoder(name string, env lookup) *decoder {
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	return &decoder{file: name, env: env, places: map[string]place{}, told: map[string]bool{},
		expanded: map[string]string{}, variables: map[string]string{}, keys: map[string]string{}}
}

// decode reads src over the defaults without checking what its values mean
// together.
func (d *decoder) decode(src []byte) *File {
	f := Default()
	if root := d.parse(src); root != nil {
		d.value(root, "", key{}, reflect.ValueOf(&f).Elem())
	}
	return &f
}

// parse turns src into the node of its only document; nil if there is none or
// it is no YAML.
func (d *decoder) parse(src []byte) *yaml.Node {
	if len(src) > maxFile {
		d.problem(&yaml.Node{}, "", fmt.Sprintf("the file is longer than %v", Size(maxFile)), "shorten it")
		return nil
	}
	for at, r := range string(src) {
		if r == utf8.RuneError && !bytes.HasPrefix(src[at:], []byte(string(utf8.RuneError))) {
			line := bytes.Count(src[:at], []byte("\n")) + 1
			column := utf8.RuneCount(src[bytes.LastIndexByte(src[:at], '\n')+1:at]) + 1
			d.problem(&yaml.Node{Line: line, Column: column}, "", "the file is not UTF-8", "save it as UTF-8")
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
		d.problem(&second, "", "a second document starts here", "remove the ---: a configuration is one document")
	case !errors.Is(err, io.EOF):
		d.syntax(src, err)
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil
	}
	return document.Content[0]
}

// syntaxLine finds the line in a message of the YAML parser.
var syntaxLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax notes what the YAML parser says, at the line that it says or, where a
// tab is to blame, at the tab.
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
	// The parser counts the line of some errors from 0.
	for at := max(line-1, 1); at <= min(line+1, len(lines)); at++ {
		text := lines[at-1]
		indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 {
			d.problem(&yaml.Node{Line: at, Column: tab + 1}, "", "a tab in the indentation", "indent with spaces")
			return
		}
	}
	line = min(max(line, 1), len(lines))
	column := 1 + len(lines[line-1]) - len(strings.TrimLeft(lines[line-1], " "))
	d.problem(&yaml.Node{Line: line, Column: column}, "", message, "")
}
