package answers

import (
	"strings"
	"testing"
)

// TestMarksKeepNumbersAndQuotations: texts with other numbers, symbols or quotations have other marks, and paraphrases
// have the same ones.
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
		{"What does “à très vite” mean in German?", "What does “à assez vite” mean in German?", false},
		{"What does „à très vite” mean in Polish?", "What does „à assez vite” mean in Polish?", false},
		{"What does ”à très vite” mean in Swedish?", "What does ”à assez vite” mean in Swedish?", false},
		{"What does ‚à très vite‘ mean in German?", "What does ‚à assez vite‘ mean in German?", false},
		{"What does ‚à très vite’ mean in Polish?", "What does ‚à assez vite’ mean in Polish?", false},
		{"What does ’à très vite’ mean in Swedish?", "What does ’à assez vite’ mean in Swedish?", false},
		{"What does ‹à très vite› mean in French?", "What does ‹à assez vite› mean in French?", false},
		{"What does ›à très vite‹ mean in German?", "What does ›à assez vite‹ mean in German?", false},
		{"What does »à très vite« mean in German?", "What does »à assez vite« mean in German?", false},
		{"What does »à très vite» mean in Finnish?", "What does »à assez vite» mean in Finnish?", false},
		{"What does “à très vite“ mean in English?", "What does “à assez vite“ mean in English?", false},
		{"What does „à très vite\" mean in German?", "What does „à assez vite\" mean in German?", false},
		{"What does \"à très vite mean in English?", "What does \"à assez vite mean in English?", false},
		{"Is „er sagt \"oft\" gern“ a good sentence?", "Is „er sagt \"nie\" gern“ a good sentence?", false},
		{"What does ``à très vite'' mean in English?", "What does ``à assez vite'' mean in English?", false},
		{"What does ``a then b`` do in this program?", "What does ``a else b`` do in this program?", false},
		{"请问『很 高 兴』这句话是什么意思呢请问", "请问『很 伤 兴』这句话是什么意思呢请问", false},
		{"请问《很高兴》这句话是什么意思呢请问", "请问《很伤心》这句话是什么意思呢请问", false},
		{"请问〈很高兴〉这句话是什么意思呢请问", "请问〈很伤心〉这句话是什么意思呢请问", false},
		{"请问「很高兴」这句话是什么意思呢请问", "请问「很伤心」这句话是什么意思呢请问", false},
		{"Is “cat” an older word than “dog”?", "Is the word “cat” older than “dog”?", true},
		{"It’s true that the cats’ dogs sleep.", "It’s a fact that the cats’ dogs sleep.", true},
		{"The dogs' owner and the cats' owner met", "Did the dogs' owner meet the cats' owner", true},
		{"It's true that cats aren't dogs.", "It's a fact that cats aren't dogs.", true},
		{`Is "cat" an older word than "dog"?`, `Is the word "cat" older than "dog"?`, true},
		{`Is "cat" an older word than "dog"?`, `Is the word "dog" older than "cat"?`, false},
		{"Explain 'it's fine' to a beginner", "Explain 'it's bad' to a beginner", false},
		{"Wie hoch ist der Berg im Jahr ५?", "Wie hoch ist der Berg im Jahr ६?", false},
		{"How large is ½ of the whole cake?", "How large is ¼ of the whole cake?", false},
		{"How cold is it at -5 degrees?", "How cold is it at 5 degrees?", false},
		{"How cold is it at −5 degrees?", "How cold is it at 5 degrees?", false},
		{"What is the exact value of 17 + 4", "What is the exact value of 17 - 4", false},
		{"What is the exact value of 17 plus 4", "What is the exact value of 17 minus 4", false},
		{"What is the value of 2 * (3 + 4)?", "What is the value of (2 * 3) + 4?", false},
		{"What is the value of 2 * ( 3 + 4 )?", "What is the value of ( 2 * 3 ) + 4?", false},
		{"What is the value of a * (b + c)?", "What is the value of (a * b) + c?", false},
		{"What is the value of 5! exactly?", "What is the value of 5 exactly?", false},
		{"Is it true that 17 < 4 holds?", "Is it true that 17 > 4 holds?", false},
		{"Is it true that a <= b holds?", "Is it true that a >= b holds?", false},
		{"Is it true that a ≤ b holds?", "Is it true that a ≥ b holds?", false},
		{"Find the price of 1.5 apples", "Find the price of 1,5 apples", false},
		{"How much is 5% of the price?", "How much is 5 of the price?", false},
		{"How much is 5 % of the price?", "How much is 5 of the price?", false},
		{"How much is $5 in this shop?", "How much is €5 in this shop?", false},
		{"How much is 5 km in this unit?", "How much is 5km in this unit?", false},
		{"What was on the day 1/2 2020", "What was on the day 1-2 2020", false},
		{"How warm is it at 30 °C there?", "How warm is it at 30 °F there?", false},
		{"Name three rivers of the country", "Name four rivers of the country", false},
		{"Name twenty-one rivers of Europe", "Name twenty-two rivers of Europe", false},
		{"Name the first king of the land", "Name the tenth king of the land", false},
		{"Name a third of all the rivers", "Name a half of all the rivers", false},
		{"When did World War II begin there?", "When did World War I begin there?", false},
		{"Explain part ii of the long essay", "Explain part iv of the long essay", false},
		{"Explain parts ii-iv of this essay", "Explain parts ii-vi of this essay", false},
		{"Explain part Ii of the long essay", "Explain part of the long essay, do", false},
		{"I did mix a mild dim vivid civic lid", "I'll ill mimic a livid mill, mid dill", true},
		{"What does x+y;z mean in the code?", "What does x-y;z mean in the code?", false},
		{"How do I learn C++ in a short time?", "How do I learn C# in a short time?", false},
		{"Run the program with -v as a flag", "Run the program with v as a flag", false},
		{"Name Three rivers of the country.", "Please name three rivers of the country!", true},
		{"What happened in 1914, in Europe?", "In 1914; what happened in Europe", true},
		{"Explain a well-known theorem to us.", "Please explain a well-known theorem!", true},
		{"Why, then, is the sky blue?", "Why is the sky blue, then...", true},
		{"我有3个苹果，请问它们一共多少钱？谢谢", "请问一下，3个苹果一共要花多少钱呢？", true},
		{"我有3个苹果，请问它们一共多少钱？谢谢", "请问一下，4个苹果一共要花多少钱呢？", false},
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
