package openai

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
	"pgregory.net/rapid"
)

// tokenPair is one encoding as it is and as the reference has it.
type tokenPair struct {
	name      string
	own       *Vocabulary
	reference *tiktoken.Tiktoken
}

// tokenPairs are both encodings, parsed once for all tests.
var tokenPairs = sync.OnceValue(func() []tokenPair {
	tiktoken.SetBpeLoader(loader.NewOfflineLoader()) // the default one downloads
	var pairs []tokenPair
	for _, name := range []string{Cl100kBase, O200kBase} {
		own, err := LoadVocabulary(name)
		if err != nil {
			panic(err)
		}
		reference, err := tiktoken.GetEncoding(name)
		if err != nil {
			panic(err)
		}
		pairs = append(pairs, tokenPair{name, own, reference})
	}
	return pairs
})

// check compares one count. The reference needs the square of the longest word
// in time: texts are short.
func (p tokenPair) check(t interface{ Errorf(string, ...any) }, text string) {
	want := len(p.reference.EncodeOrdinary(text))
	if got := p.own.Count([]byte(text)); got != want {
		t.Errorf("%s: %q has %d tokens, counted %d", p.name, text, want, got)
	}
}

// tokenTexts are texts of which each is a trap for one of the split's rules.
func tokenTexts() []string {
	return []string{
		"", " ", "\n", "a", "\xff", "\n \n", " \n", "\n ", "\r\n\r\n", "a\n \n b", "\t\t\tx", "a  b", "a   ", "   a", " \u00a0 a", "\u3000\u3000x", "\u2028\u2029 a", "\u0085\u0085!",
		"I'll can't WE'RE y'all's 'S 'Ve he'd'd ''s 'l 'r 're 'x '", "'\u017fa", "don't'T", "HTTPServer camelCase XMLHttpRequest aB Ab ABc aBC",
		"1 12 123 1234 12345678901234567890 1,234.5 ½²Ⅷ٣", "a1b2 c34567d",
		"!!! ... ?!\n\n\r\n//x https://a.b/c//d\n/ /\n /*\n*/ ///\r\n/", " !a !b", "-\n-", "\u00b7/\n/\n",
		"Grüße, naïve façade ÀÉÎ ǅ ǅa aǅ ʰa Aʰ AʰB ªº", "日本語のテキスト、カタカナとABC漢字。", "中文没有空格的一个很长的句子，还有标点。", "한국어 텍스트",
		"مرحبا بالعالم ١٢٣", "שלום עולם", "हिन्दी में क्ष", "ไทยไม่มีช่องว่าง", "Привет МИР Мир мИр", "Aあ AあB AあBc あA",
		"e\u0301 \u0301 \u0301A \u0301AB \u0301ab !\u0301 !!\u0301 1\u0301 A\u0301B \u0301\u0301X\n\u0301", "\u0301's \u0301AB's AB's",
		"👩‍👩‍👧‍👦 👍🏽 🇩🇪 ☃️ x👍x", "\U00020000\U0002a6df𠮷 \U000e0100 \U00010400\U00010428 \U0001d7ce\U0001d7cf\U0001d7d0\U0001d7d1",
		"a\xffb \xc3\x28 \xe2\x82 \xf0\x9f\x91 \xed\xa0\x80 \x00\x01\x7f", "\ufffd\ufeffx",
		strings.Repeat(" ", 200) + "x", strings.Repeat("\n", 200), strings.Repeat("7", 200), strings.Repeat("=", 200), strings.Repeat("a", 300), strings.Repeat("中", 120), strings.Repeat(" \n", 90) + "  y", strings.Repeat("ab", 170),
		"<|endoftext|> a<|endofprompt|>b <|fim_prefix|>",
		"func (m *merger) count(piece []byte) int {\n\tif len(piece) <= 96 { // short\n\t\treturn m.short(piece)\n\t}\n\n\treturn 0\n}\n",
		"def f(x):\n    return [i ** 2 for i in range(10)]  # squares\n\n\nclass A:\n        pass\n",
		`{"role": "user", "content": "a\nb", "n": [1, 2.50, -3e10]}`,
	}
}

func TestTokensAreCountedAsTheReferenceDoes(t *testing.T) {
	for _, p := range tokenPairs() {
		for _, text := range tokenTexts() {
			p.check(t, text)
		}
		p.check(t, strings.Join(tokenTexts(), ""))
		p.check(t, strings.Join(tokenTexts(), " "))
	}
}

// Two ways to cut one text may have as many tokens; the counts of all that it
// begins with tell them apart.
func TestEveryBeginningOfATextCountsAsTheReferenceDoes(t *testing.T) {
	for _, p := range tokenPairs() {
		for _, text := range tokenTexts() {
			for i := range text[:min(len(text), 64)] {
				p.check(t, text[:i])
			}
		}
	}
}

// tokenAlphabet has of each class that the split knows what is next to another.
func tokenAlphabet() []string {
	return []string{"a", "b", "e", "s", "l", "re", "A", "S", "LL", "Z", "ß", "é", "ǅ", "ʰ", "ª", "あ", "中", "文", "ע", "م",
		"\u0301", "\u0903", "\u20dd", "0", "1", "9", "½", "٣", "'", "'s", "'T", "ſ", "!", ".", "/", "-", "_", "€", "👍", "\u200d", "\ufe0f", "𠮷", "\U000e0100", "𐐀", "𐐨", "𝟎",
		" ", " ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\u0085", "\u00a0", "\u2003", "\u2028", "\u3000", "\x00", "\x7f", "\xff", "\xe4", "\xed\xa0\x80", "\U0010ffff", "the", " and", "ing", "tion", "<|endoftext|>"}
}

func TestNastyTextsCountAsTheReferenceDoes(t *testing.T) {
	pairs := tokenPairs()
	rapid.Check(t, func(t *rapid.T) {
		// Many short ones for each check, for the checks are a hundred.
		for _, words := range rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(tokenAlphabet()), 1, 12), 30, 30).Draw(t, "texts") {
			for _, p := range pairs {
				p.check(t, strings.Join(words, ""))
			}
		}
	})
}

// A piece longer than shortPiece is merged in another way, to the same end.
func TestLongPiecesMergeAsShortOnesDo(t *testing.T) {
	for _, p := range tokenPairs() {
		m := merger{ranks: &p.own.ranks}
		rapid.Check(t, func(t *rapid.T) {
			letters := rapid.SampledFrom([]string{"a", "ab", "abcdefghij", " ", "\n", "=-", "\xe4\xb8\xad\xe6\x96\x87", "aeiourstn", "\xff\x00\xc3\xa9"}).Draw(t, "letters")
			piece := rapid.SliceOfN(rapid.SampledFrom([]byte(letters)), 2, shortPiece).Draw(t, "piece")
			if short, long := m.short(piece), m.long(piece); short != long {
				t.Errorf("%s: %q merges to %d parts, with a heap to %d", p.name, piece, short, long)
			}
		})
	}
}

// With the square of the length in time, this test takes minutes.
func TestAWordOfAQuarterMegabyteIsCounted(t *testing.T) {
	const size = 1 << 18
	for _, p := range tokenPairs() {
		for _, word := range []string{"a", "中", "_", " ", "\n"} {
			// The reference says how many tokens each further kilobyte adds.
			one, two := len(p.reference.EncodeOrdinary(strings.Repeat(word, 1024))), len(p.reference.EncodeOrdinary(strings.Repeat(word, 2048)))
			want := one + (two-one)*(size/1024-1)
			if got := p.own.Count(bytes.Repeat([]byte(word), size)); got != want {
				t.Errorf("%s: %d times %q have %d tokens, counted %d", p.name, size, word, want, got)
			}
		}
	}
}

func TestPublishedCountsHold(t *testing.T) {
	for _, c := range []struct {
		text   string
		counts [2]int
	}{
		{"antidisestablishmentarianism", [2]int{6, 6}},
		{"2 + 2 = 4", [2]int{7, 7}},
		{"お誕生日おめでとう", [2]int{9, 8}},
		{"hello world", [2]int{2, 2}},
	} {
		for i, p := range tokenPairs() {
			if got := p.own.Count([]byte(c.text)); got != c.counts[i] {
				t.Errorf("%s: %q has %d tokens, counted %d", p.name, c.text, c.counts[i], got)
			}
		}
	}
}

func TestOrdinaryTextIsCountedWithoutAllocating(t *testing.T) {
	text := []byte(strings.Repeat("The gateway counts, and allocates nothing: 中文 too, don't you see?\n", 20))
	for _, p := range tokenPairs() {
		if n := testing.AllocsPerRun(5, func() { p.own.Count(text) }); n != 0 {
			t.Errorf("%s: %v allocations", p.name, n)
		}
	}
}

func TestManyGoroutinesCountAtOnce(t *testing.T) {
	text := []byte(strings.Join(tokenTexts(), " "))
	for _, p := range tokenPairs() {
		want := p.own.Count(text)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if got := p.own.Count(text); got != want {
					t.Errorf("%s: %d tokens, then %d", p.name, want, got)
				}
			})
		}
		all.Wait()
	}
}

func TestNoOtherVocabularyLoads(t *testing.T) {
	for _, name := range []string{"", "p50k_base", "cl100k", "../cl100k_base"} {
		if v, err := LoadVocabulary(name); v != nil || err == nil || !strings.Contains(err.Error(), O200kBase) {
			t.Errorf("%q: %v, %v", name, v, err)
		}
	}
}

func TestVocabulariesFitTheirModels(t *testing.T) {
	for model, want := range map[string]string{
		"gpt-4o": O200kBase, "gpt-4o-mini-2024-07-18": O200kBase, "chatgpt-4o-latest": O200kBase, "gpt-4.1-nano": O200kBase, "GPT-5": O200kBase,
		"o1": O200kBase, "o3-mini": O200kBase, "o4-mini-2025-04-16": O200kBase, "ft:gpt-4o-mini:acme::x1": O200kBase, "ft:o4-mini:acme": O200kBase,
		"openai/gpt-oss-120b": O200kBase, "gpt-oss:20b": O200kBase, "unsloth/GPT-OSS-20b-GGUF": O200kBase,
		"gpt-4": Cl100kBase, "gpt-4-turbo": Cl100kBase, "gpt-3.5-turbo": Cl100kBase, "text-embedding-3-large": Cl100kBase,
		"qwen2.5-7b-instruct": Cl100kBase, "meta-llama/Llama-3.1-8B": Cl100kBase, "o1x": Cl100kBase, "gpt-4o/other": Cl100kBase, "": Cl100kBase,
	} {
		if got := VocabularyOf(model); got != want {
			t.Errorf("%q counts with %s, want %s", model, got, want)
		}
	}
}

func FuzzTokens(f *testing.F) {
	for _, text := range tokenTexts() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2048 {
			return // the reference takes the square of the length
		}
		for _, p := range tokenPairs() {
			p.check(t, text)
			// What is no UTF-8 becomes one character of three bytes for each byte.
			if n := p.own.Count([]byte(text)); n > 3*len(text) || (n == 0) != (text == "") || utf8.ValidString(text) && n > len(text) {
				t.Errorf("%s: %q has %d tokens", p.name, text, n)
			}
		}
	})
}
