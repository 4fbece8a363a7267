package tierscore

import (
	"bytes"
	"testing"
)

func TestLengthLevelsAreHalfOctaves(t *testing.T) {
	e := NewExtractor("")
	for bytesOf, want := range map[int]int{0: 0, 1: 1, 2: 3, 3: 4, 4: 5, 5: 5, 6: 6, 100: 14, 8192: 27} {
		var f Features
		e.Extract(&f, &Input{User: bytes.Repeat([]byte("a"), bytesOf), Turns: 3, Tools: true})
		if got := LengthLevel(f.AppendColumns(nil)); got != want {
			t.Errorf("%d bytes have the level %d, want %d", bytesOf, got, want)
		}
	}
}
