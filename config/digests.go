package config

import (
	"bytes"
	"os"
	"regexp"
)

var (
	// Only values of sha256: elsewhere, a message about the value would show the whole digest.
	shortened = regexp.MustCompile(`\bsha256["']?\s*:\s*["']?[0-9a-f]{8}…`)
	whole     = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
)

// RestoreDigests returns a draft with the full digests of the file at path in place of those that ReadText shortened.
// Without a file the draft stays as it is, and a digest that the file does not contain stays shortened.
func RestoreDigests(draft []byte, path string) []byte {
	if path == "" || !shortened.Match(draft) {
		return draft
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return draft
	}
	known := whole.FindAll(src, -1)
	return shortened.ReplaceAllFunc(draft, func(short []byte) []byte {
		key, begin := short[:len(short)-len("01234567…")], short[len(short)-len("01234567…"):][:8]
		for _, digest := range known {
			if bytes.HasPrefix(digest, begin) {
				return append(bytes.Clone(key), digest...)
			}
		}
		return short
	})
}
