package config

import (
	"bytes"
	"os"
	"regexp"
)

var (
	shortened = regexp.MustCompile(`\b[0-9a-f]{8}…`)
	whole     = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
)

// RestoreDigests returns a draft in which the digests that ReadText shortened are whole again. It takes them from
// the file at path; without one, or if no digest of the file begins so, the draft stays as it is.
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
		for _, digest := range known {
			if bytes.HasPrefix(digest, short[:8]) {
				return digest
			}
		}
		return short
	})
}
