package openai

import (
	"strings"
	"testing"
)

// TestBlanksBeforeABodyAreExaminedOnce, however many reads the body needs.
func TestBlanksBeforeABodyAreExaminedOnce(t *testing.T) {
	for _, mark := range []string{"", "\xef\xbb\xbf"} {
		var b Beginning
		body := []byte(mark + strings.Repeat(" \n", 1000))
		for n := range len(body) {
			if b.IsNoJSON(body[:n]) {
				t.Fatalf("%q and %d bytes are no JSON", mark, n)
			}
		}
		for i := range len(body) - 1 {
			body[i] = 'x' // nothing reads it again
		}
		if body = append(body, '{'); string(b.after(body)) != "{" || b.IsNoJSON(body) {
			t.Errorf("%q: %q after blanks", mark, b.after(body))
		}
	}
	for body, want := range map[string]bool{" <html>": true, "<html": false, "data: ": true, " : x": true,
		"[1,2,3,4": false} {
		if new(Beginning).IsNoJSON([]byte(body)) != want {
			t.Errorf("%q: %v", body, !want)
		}
	}
}
