package config

import (
	"fmt"
	"strings"
)

// DidYouMean returns the hint for a mistyped word: the known word within two edits of it, else
// the first 24 known words.
func DidYouMean(word string, known []string) string {
	if near := nearest(word, known); near != "" {
		return "did you mean " + near + "?"
	}
	return listOf(known)
}

// listOf returns the first 24 known words.
func listOf(known []string) string {
	if len(known) == 0 {
		return "none is defined"
	}
	if len(known) > 24 { // they fill two or three terminal lines
		return fmt.Sprintf("known: %s and %d more", strings.Join(known[:24], ", "), len(known)-24)
	}
	return "known: " + strings.Join(known, ", ")
}

// nearest returns the known word with the fewest edits to word, at most two and fewer than half
// of word's length, or "". Ties go to the first word.
func nearest(word string, known []string) string {
	best, distance := "", 3 // up to two edits
	for _, k := range known {
		d := edits(strings.ToLower(word), k)
		if d < distance && 2*d < max(len(word), 2) {
			best, distance = k, d
		}
	}
	return best
}

// edits returns the optimal string alignment distance: insertions, deletions, substitutions and
// swaps of neighbours count one edit each. It returns 3 if the lengths differ by more than two.
func edits(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) > 2 || len(y)-len(x) > 2 {
		return 3
	}
	older, old, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range row {
		old[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(old[j+1]+1, row[j]+1, old[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		older, old, row = old, row, older
	}
	return old[len(y)]
}
