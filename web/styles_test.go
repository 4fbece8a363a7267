package web

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// firstClass matches a rule of which the selector is one class.
var firstClass = regexp.MustCompile(`(?m)^(\.[\w-]+)\s*[{,]$`)

// TestStyleSheetsShareNoClass: all sheets are one file in the built page, so a rule of one page would apply to others.
func TestStyleSheetsShareNoClass(t *testing.T) {
	sheets := map[string][]string{}
	err := fs.WalkDir(os.DirFS("ui/src"), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".css") {
			return err
		}
		text, err := os.ReadFile("ui/src/" + name)
		for _, class := range firstClass.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(sheets[class[1]], name) {
				sheets[class[1]] = append(sheets[class[1]], name)
			}
		}
		return err
	})
	if err != nil || len(sheets) < 50 {
		t.Fatalf("%d classes: %v", len(sheets), err)
	}
	for class, in := range sheets {
		if len(in) > 1 {
			t.Errorf("%s has rules in %s", class, strings.Join(in, " and "))
		}
	}
}
