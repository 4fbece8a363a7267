package answers

import (
	"strings"
	"testing"
)

// TestMarksKeepNumbersAndQuotations: texts with other numbers or quotations have other marks, and paraphrases have the
// same ones.
func TestMarksKeepNumbersAndQuotations(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"What is the capital of France?", "Which city is the capital of France?", true},
		{"What is the price of 3 apples?", "What do 3 apples cost in a shop?", true},
		{"What is the price of 3 apples?", "What is the price of 4 apples?", false},
		{"What is the price of 13 apples?", "What is the price of 1 and 3 apples?", false},
		{"Is 2 larger than 3, or is it not?", "Is 3 larger than 2, or is it not?", false},
		{"What happened in 1914 in Europe?", "What happened in Europe at the time?", false},
		{"What does \"vite\" mean in English?", "What does \"tôt\" mean in English?", false},
		{"What does “vite” mean in English?", "What does “tôt” mean in English?", false},
		{"What does „vite“ mean in English?", "What does „tôt“ mean in English?", false},
		{"What does 'vite' mean in English?", "What does 'tôt' mean in English?", false},
		{"What does `x` do in this program?", "What does `y` do in this program?", false},
		{"It's true that cats aren't dogs.", "It's a fact that cats aren't dogs.", true},
		{`Is "cat" an older word than "dog"?`, `Is the word "cat" older than "dog"?`, true},
		{`Is "cat" an older word than "dog"?`, `Is the word "dog" older than "cat"?`, false},
		{"Explain 'it's fine' to a beginner", "Explain 'it's bad' to a beginner", false},
		{"Wie hoch ist der Berg im Jahr ५?", "Wie hoch ist der Berg im Jahr ६?", false},
		{"How large is ½ of the whole cake?", "How large is ¼ of the whole cake?", false},
	} {
		a, ok := Marks(c.a)
		b, also := Marks(c.b)
		if !ok || !also || (a == b) != c.same {
			t.Errorf("%q has %q, and %q has %q", c.a, a, c.b, b)
		}
	}
	for n, want := range map[int]bool{15: false, 16: true, 2000: true, 2001: false} {
		if _, ok := Marks(strings.Repeat("ä", n)); ok != want {
			t.Errorf("%d characters: %t", n, ok)
		}
	}
}
