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
	shown := make([]string, min(len(known), 24)) // they fill two or three terminal lines
	for i := range shown {
		shown[i] = shorten(known[i])
	}
	list := "known: " + strings.Join(shown, ", ")
	if more := len(known) - len(shown); more > 0 {
		return fmt.Sprintf("%s and %d more", list, more)
	}
	return list
}

// maxNear bounds the known words that are compared with a mistyped one.
const maxNear = 1000

// nearest returns the known word with the fewest edits to word, at most two and fewer than half
// of word's length, or "". Ties go to the first word.
func nearest(word string, known []string) string {
	best, distance := "", 3 // up to two edits
	word = strings.ToLower(word)
	for _, k := range known[:min(len(known), maxNear)] {
		d := edits(word, k)
		if d < distance && 2*d < max(len(word), 2) {
			best, distance = k, d
		}
	}
	return best
}

// edits returns the optimal string alignment distance: insertions, deletions, substitutions and
// swaps of neighbours count one edit each. It returns 3 if the lengths differ by more than two.
func edits(a, b string) int {
	if len(b) > 4*(len(a)+2) || len(a) > 4*(len(b)+2) { // a character has at most four bytes
		return 3
	}
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) > 2 || len(y)-len(x) > 2 {
		return 3
	}
	older, old, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range row {
		old[j] = j
	}
	previous := 0 // least of the row before
	for i := range x {
		row[0] = i + 1
		least := row[0]
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(old[j+1]+1, row[j]+1, old[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
			least = min(least, row[j+1])
		}
		if least > 2 && previous > 2 { // a swap continues the row before
			return 3
		}
		previous = least
		older, old, row = old, row, older
	}
	return old[len(y)]
}
