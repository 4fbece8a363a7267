package tokens

import (
	"strings"
	"sync"
	"testing"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

// vocabulary is one encoding from Load and from the library's own constructor.
type vocabulary struct {
	name      string
	own       *Vocabulary
	reference *tiktoken.Tiktoken
}

// vocabularies are both encodings, loaded once for all tests.
var vocabularies = sync.OnceValue(func() []vocabulary {
	tiktoken.SetBpeLoader(loader.NewOfflineLoader()) // the default one downloads
	var all []vocabulary
	for _, name := range []string{Cl100kBase, O200kBase} {
		own, err := Load(name)
		if err != nil {
			panic(err)
		}
		reference, err := tiktoken.GetEncoding(name)
		if err != nil {
			panic(err)
		}
		all = append(all, vocabulary{name, own, reference})
	}
	return all
})

// check compares one count with that of the library's encoding.
func (v vocabulary) check(t interface{ Errorf(string, ...any) }, text string) {
	want := len(v.reference.EncodeOrdinary(text))
	if got, ok := v.own.Count([]byte(text)); got != want || !ok {
		t.Errorf("%s: %q has %d tokens, counted %d, %v", v.name, text, want, got, ok)
	}
}

// tokenTexts returns texts that exercise the rules by which text is split.
func tokenTexts() []string {
	return []string{
		"", " ", "\n", "a", "\xff", "\n \n", " \n", "\n ", "\r\n\r\n", "a\n \n b", "\t\t\tx", "a  b", "a   ", "   a",
		" \u00a0 a", "\u3000\u3000x", "\u2028\u2029 a", "\u0085\u0085!",
		"I'll can't WE'RE y'all's 'S 'Ve he'd'd ''s 'l 'r 're 'x '", "'\u017fa", "don't'T",
		"HTTPServer camelCase XMLHttpRequest aB Ab ABc aBC",
		"1 12 123 1234 12345678901234567890 1,234.5 ½²Ⅷ٣", "a1b2 c34567d",
		"!!! ... ?!\n\n\r\n//x https://a.b/c//d\n/ /\n /*\n*/ ///\r\n/", " !a !b", "-\n-", "\u00b7/\n/\n",
		"Grüße, naïve façade ÀÉÎ ǅ ǅa aǅ ʰa Aʰ AʰB ªº", "日本語のテキスト、カタカナとABC漢字。", "中文没有空格的一个很长的句子，还有标点。", "한국어 텍스트",
		"مرحبا بالعالم ١٢٣", "שלום עולם", "हिन्दी में क्ष", "ไทยไม่มีช่องว่าง", "Привет МИР Мир мИр", "Aあ AあB AあBc あA",
		"e\u0301 \u0301 \u0301A \u0301AB \u0301ab !\u0301 !!\u0301 1\u0301 A\u0301B \u0301\u0301X\n\u0301",
		"\u0301's \u0301AB's AB's",
		"👩‍👩‍👧‍👦 👍🏽 🇩🇪 ☃️ x👍x",
		"\U00020000\U0002a6df𠮷 \U000e0100 \U00010400\U00010428 \U0001d7ce\U0001d7cf\U0001d7d0\U0001d7d1",
		"a\xffb \xc3\x28 \xe2\x82 \xf0\x9f\x91 \xed\xa0\x80 \x00\x01\x7f", "\ufffd\ufeffx",
		strings.Repeat(" ", 200) + "x", strings.Repeat("\n", 200), strings.Repeat("7", 200), strings.Repeat("=", 200),
		strings.Repeat("a", 300), strings.Repeat("中", 120), strings.Repeat(" \n", 90) + "  y", strings.Repeat("ab", 170),
		"<|endoftext|> a<|endofprompt|>b <|fim_prefix|>",
		"func (m *merger) count(piece []byte) int {\n\tif len(piece) <= 96 { // short\n\t\treturn " +
			"m.short(piece)\n\t}\n\n\treturn 0\n}\n",
		"def f(x):\n    return [i ** 2 for i in range(10)]  # squares\n\n\nclass A:\n        pass\n",
		`{"role": "user", "content": "a\nb", "n": [1, 2.50, -3e10]}`,
	}
}

func TestTokensAreCountedAsTheLibraryDoes(t *testing.T) {
	for _, v := range vocabularies() {
		for _, text := range tokenTexts() {
			v.check(t, text)
		}
		v.check(t, strings.Join(tokenTexts(), "1"))
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
		{"\n \n", [2]int{1, 1}},
	} {
		for i, v := range vocabularies() {
			if got, ok := v.own.Count([]byte(c.text)); got != c.counts[i] || !ok {
				t.Errorf("%s: %q has %d tokens, counted %d", v.name, c.text, c.counts[i], got)
			}
		}
	}
}

// The library takes quadratic time for a run, so texts with a long run are not counted. Long texts
// are not counted either.
func TestExpensiveTextsAreNotCounted(t *testing.T) {
	v := vocabularies()[0].own
	for _, run := range []string{"a", "Z", "中", "é", "e\u0301", "_", "-=", " ", "\n", " \n", "\u0301", "\xff", "👍",
		"\u3000", "/\n", "/\r\n", "//\n"} {
		long := strings.Repeat(run, maxRun/len(run)+1)
		for _, text := range []string{long, "ordinary words " + long, "1" + long + "1"} {
			if n, ok := v.Count([]byte(text)); ok {
				t.Errorf("a run of %q in a text is counted: %d", run, n)
			}
		}
		if text := strings.Repeat(run, maxRun/len(run)-1); !hasOnlyShortRuns([]byte(text + "1" + text)) {
			t.Errorf("two runs of %q, each just below the limit, are not counted", run)
		}
	}
	words := strings.Repeat("two words, ", MaxBytes/11+1)
	if _, ok := v.Count([]byte(words[:MaxBytes])); !ok {
		t.Error("a text of MaxBytes is not counted")
	}
	if _, ok := v.Count([]byte(words[:MaxBytes+1])); ok {
		t.Error("a text of more than MaxBytes is counted")
	}
}

func TestConcurrentCountsAreEqual(t *testing.T) {
	text := []byte(strings.Join(tokenTexts(), " "))
	for _, v := range vocabularies() {
		want, _ := v.own.Count(text)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if got, _ := v.own.Count(text); got != want {
					t.Errorf("%s: %d tokens, then %d", v.name, want, got)
				}
			})
		}
		all.Wait()
	}
}

func TestUnknownVocabularyIsAnError(t *testing.T) {
	for _, name := range []string{"", "p50k_base", "cl100k", "../cl100k_base"} {
		if v, err := Load(name); v != nil || err == nil || !strings.Contains(err.Error(), O200kBase) {
			t.Errorf("%q: %v, %v", name, v, err)
		}
	}
}

func TestVocabulariesFitTheirModels(t *testing.T) {
	for model, want := range map[string]string{
		"gpt-4o": O200kBase, "gpt-4o-mini-2024-07-18": O200kBase, "chatgpt-4o-latest": O200kBase, "gpt-4.1-nano": O200kBase,
		"GPT-5": O200kBase,
		"o1":    O200kBase, "o3-mini": O200kBase, "o4-mini-2025-04-16": O200kBase, "ft:gpt-4o-mini:acme::x1": O200kBase,
		"ft:o4-mini:acme":     O200kBase,
		"openai/gpt-oss-120b": O200kBase, "gpt-oss:20b": O200kBase, "unsloth/GPT-OSS-20b-GGUF": O200kBase,
		"gpt-4": Cl100kBase, "gpt-4-turbo": Cl100kBase, "gpt-3.5-turbo": Cl100kBase, "text-embedding-3-large": Cl100kBase,
		"qwen2.5-7b-instruct": Cl100kBase, "meta-llama/Llama-3.1-8B": Cl100kBase, "o1x": Cl100kBase,
		"gpt-4o/other": Cl100kBase, "": Cl100kBase,
	} {
		if got := NameFor(model); got != want {
			t.Errorf("%q counts with %s, want %s", model, got, want)
		}
	}
}
