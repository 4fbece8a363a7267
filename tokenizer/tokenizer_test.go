package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// golden is a tokenizer.json of 1,200 tokens, and the tokens of texts by Hugging Face's tokenizers 0.23.3
// with it.
type golden struct {
	Tokenizer json.RawMessage
	Prompt    []uint32 // of "hello", with special tokens
	Cases     []struct {
		Text string
		IDs  []uint32
	}
}

func families() []string { return []string{"gpt2", "llama3", "qwen2", "qwen35", "deepseek"} }

func readGolden(t testing.TB, family string) (g golden) {
	t.Helper()
	f, err := os.Open("testdata/" + family + ".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

func load(t testing.TB, family string) *Tokenizer {
	t.Helper()
	tok, err := Parse(readGolden(t, family).Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTokensAreThoseOfHuggingFace(t *testing.T) {
	for _, family := range families() {
		g := readGolden(t, family)
		tok := load(t, family)
		wrong := 0
		for _, c := range g.Cases {
			if got := tok.Encode(nil, []byte(c.Text)); !slices.Equal(got, c.IDs) {
				if wrong++; wrong < 5 {
					t.Errorf("%s: %+q has %v, not %v", family, c.Text, got, c.IDs)
				}
			}
		}
		if len(g.Cases) < 150 || wrong > 0 {
			t.Errorf("%s: %d of %d texts are wrong", family, wrong, len(g.Cases))
		}
		if got := tok.EncodePrompt(nil, []byte("hello"), true); !slices.Equal(got, g.Prompt) {
			t.Errorf("%s: a prompt has %v, not %v", family, got, g.Prompt)
		}
	}
}

func drawText(t *rapid.T) string {
	alphabet := []rune("ab Z19'\n\r\té東ー한🙂\u0301\u00a0\u2028!_<|>imend\x00")
	text := rapid.StringOfN(rapid.OneOf(rapid.SampledFrom(alphabet), rapid.Rune()), 0, 60, -1).Draw(t, "text")
	return strings.Repeat(text, rapid.SampledFrom([]int{1, 1, 5}).Draw(t, "times"))
}

func TestDecodedTokensAreTheText(t *testing.T) {
	for _, family := range families() {
		tok := load(t, family)
		rapid.Check(t, func(t *rapid.T) {
			text := drawText(t)
			want := text
			if tok.composed {
				// Composition stops at added tokens. Text without them is composed as a whole.
				if strings.ContainsAny(text, "<") {
					t.Skip("an added token")
				}
				want = norm.NFC.String(text)
			}
			if got := string(decode(tok, tok.Encode(nil, []byte(text)))); got != want {
				t.Fatalf("%s: %+q, not %+q", family, got, want)
			}
		})
	}
}

// TestShortAndLongPiecesAreMergedAlike compares the two ways of merging with each other.
func TestShortAndLongPiecesAreMergedAlike(t *testing.T) {
	tok := load(t, "gpt2")
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.SampledFrom([]byte("thereading aeo\xc3\xa9")), 2, shortPiece).Draw(t, "piece")
		short, long := tok.appendShort(nil, piece), tok.appendLong(nil, new(merger), piece)
		if !slices.Equal(short, long) {
			t.Fatalf("%q: %v and %v", piece, short, long)
		}
	})
}

func TestWhatIsNotSupportedIsRefused(t *testing.T) {
	good := string(readGolden(t, "llama3").Tokenizer)
	for _, c := range []struct{ from, to, want string }{
		{`"type": "BPE"`, `"type": "Unigram"`, `model.type is "Unigram"`},
		{`"byte_fallback": false`, `"byte_fallback": true`, "byte_fallback"},
		{`"dropout": null`, `"dropout": 0.1`, "dropout"},
		{`"end_of_word_suffix": null`, `"end_of_word_suffix": "</w>"`, "end_of_word_suffix"},
		{`"normalizer": null`, `"normalizer": {"type": "Lowercase"}`, `normalizer "Lowercase"`},
		{`\\p{N}{1,3}|`, `\\p{N}{1,2}|`, `split pattern "(?i:'s|'t`},
		{`"behavior": "Isolated"`, `"behavior": "MergedWithNext"`, "MergedWithNext"},
		{`"add_prefix_space": false`, `"add_prefix_space": true`, "add_prefix_space"},
		{`"type": "Split"`, `"type": "Digits"`, `step "Digits"`},
		{`"Regex": `, `"String": `, "type Regex"},
		{`"lstrip": false`, `"lstrip": true`, "lstrip"},
		{`"content": "<|im_start|>"`, `"content": ""`, "a token is empty"},
		{`"type": "TemplateProcessing"`, `"type": "BertProcessing"`, `post_processor "BertProcessing"`},
		{`"Sequence": {"id": "A"`, `"Other": {"id": "A"`, "post_processor"},
		{`"!": 0`, `"!": -1`, "id -1"},
		{`"!": 0`, `"??": 0`, "byte 0x21"},
		{`{`, `[`, "no tokenizer.json"},
	} {
		bad := strings.Replace(good, c.from, c.to, 1)
		if bad == good {
			t.Errorf("%s is not in the file", c.from)
			continue
		}
		if _, err := Parse([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.to, err, c.want)
		}
	}
	if _, err := Load("testdata/none.json"); err == nil || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("a missing file: %v", err)
	}
}

// smallest returns the tokenizer.json of a family with the tokens of single bytes and three others.
func smallest(t testing.TB, family string) []byte {
	t.Helper()
	var file map[string]any
	if err := json.Unmarshal(readGolden(t, family).Tokenizer, &file); err != nil {
		t.Fatal(err)
	}
	model := file["model"].(map[string]any)
	merges := model["merges"].([]any)[:3]
	vocab := model["vocab"].(map[string]any)
	model["merges"] = merges
	for token, id := range vocab {
		if id.(float64) >= 256+3 {
			delete(vocab, token)
		}
	}
	b, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzParse(f *testing.F) {
	for _, family := range families() {
		f.Add(smallest(f, family), []byte("It's 12345 東京\r\n <|im_end|>"))
	}
	f.Fuzz(func(t *testing.T, data, text []byte) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		if ids := tok.EncodePrompt(nil, text, true); len(ids) > 4*len(text)+len(data) {
			t.Errorf("%d tokens of %d bytes", len(ids), len(text))
		}
	})
}

// FuzzEncode checks that each byte of a text is in one token, for any bytes.
func FuzzEncode(f *testing.F) {
	var toks []*Tokenizer
	for _, family := range families() {
		tok := load(f, family)
		tok.composed = false
		toks = append(toks, tok)
	}
	for _, c := range readGolden(f, "gpt2").Cases[:40] {
		f.Add([]byte(c.Text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for i, tok := range toks {
			if got := decode(tok, tok.Encode(nil, text)); !bytes.Equal(got, text) {
				t.Errorf("%s: %+q, not %+q", families()[i], got, text)
			}
		}
	})
}

// decode returns the text of tokens, which is without the special tokens that are not in added_tokens.
func decode(t *Tokenizer, ids []uint32) []byte {
	texts := map[uint32]string{}
	for text, id := range t.pieces {
		texts[id] = text
	}
	for _, list := range t.added {
		for _, a := range list {
			texts[a.id] = a.text
		}
	}
	var b bytes.Buffer
	for _, id := range ids {
		b.WriteString(texts[id])
	}
	return b.Bytes()
}
