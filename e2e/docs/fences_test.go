package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fence is a fenced block of a document.
type fence struct {
	language string
	line     int // of its opening, from 1
	text     string
}

// languages are the languages of fences. Commands are in sh; another name for a shell would hide
// them from the test that runs them.
var languages = []string{"", "json", "promql", "python", "sh", "text", "yaml"}

// indented matches a fence that Markdown accepts and that fences does not read.
var indented = regexp.MustCompile("^[ \t>]+(?:```|~~~)|^~~~")

// fences returns the fenced blocks of a document. The test fails for a block that it cannot read.
func fences(t *testing.T, file string) []fence {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []fence
	var open *fence
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		mark, isFence := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "```")
		switch {
		case indented.MatchString(line):
			t.Errorf("%s:%d: a fence is indented, or is not of backticks: begin the line with ```", file, number)
		case open == nil && isFence:
			if !slices.Contains(languages, mark) {
				t.Errorf("%s:%d: a fence has the language %q, want one of %q", file, number, mark, languages)
			}
			open = &fence{language: mark, line: number}
		case isFence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line
		}
	}
	if open != nil {
		t.Errorf("%s:%d: a fence is not closed", file, open.line)
	}
	return all
}

// blocks are the fenced blocks of one language.
func blocks(t *testing.T, file, language string) []string {
	t.Helper()
	var out []string
	for _, f := range fences(t, file) {
		if f.language == language {
			out = append(out, f.text)
		}
	}
	return out
}

// documents are all pages that a reader copies commands from.
func documents(t *testing.T) []string {
	t.Helper()
	return append([]string{"../../README.md"}, matches(t, "../../docs/*.md", "../../examples/*/README.md")...)
}

// matches returns the files that match the patterns. Each pattern has to match one.
func matches(t *testing.T, patterns ...string) []string {
	t.Helper()
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no documents at %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	return files
}

func TestFencesOfDocumentsAreReadable(t *testing.T) {
	for _, file := range matches(t, "../../*.md", "../../docs/*.md", "../../docs/decisions/*.md",
		"../../examples/*/README.md") {
		fences(t, file)
	}
}

// program matches a line that begins with a program which pages call.
var program = regexp.MustCompile(`(?m)^(?:[A-Z_]+=\S+ )*(?:bin/)?` +
	`(?:curl|docker|echo|export|go|grep|jq|kill|kubectl|make|nginx|pg_dump|pg_restore|psql|python3|sqlite3|systemctl|tierway|vllm|ollama|llama-server) .*$`)

// TestCommandsAreFencedAsShell verifies that no command escapes the test that runs commands, because
// its fence has another language.
func TestCommandsAreFencedAsShell(t *testing.T) {
	for _, file := range documents(t) {
		for _, f := range fences(t, file) {
			if f.language == "sh" {
				continue
			}
			for _, line := range program.FindAllString(f.text, -1) {
				t.Errorf("%s:%d: a fence of the language %q has the command %q: write it in a fence of sh", file, f.line,
					f.language, line)
			}
		}
	}
}
