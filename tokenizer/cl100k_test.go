package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

type object = map[string]any

// cl100k returns a tokenizer.json with the 100,256 tokens of cl100k_base, which has the split
// pattern of Llama 3, and the vocabulary.
var cl100k = sync.OnceValues(func() (file []byte, ranks map[string]int) {
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe("cl100k_base.tiktoken")
	if err != nil {
		panic(err)
	}
	chars := alphabet()
	written := func(token string) string {
		var b strings.Builder
		for _, c := range []byte(token) {
			b.WriteRune(chars[c])
		}
		return b.String()
	}
	vocab := make(map[string]int, len(ranks))
	ordered := make([]string, len(ranks))
	for token, rank := range ranks {
		vocab[written(token)] = rank
		ordered[rank] = token
	}
	merges := make([][2]string, 0, len(ranks))
	for rank, token := range ordered {
		if len(token) > 1 {
			left, right := halves(token, rank, ranks)
			merges = append(merges, [2]string{written(left), written(right)})
		}
	}
	file, err = json.Marshal(object{
		"model": object{"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": true},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": llama3Pattern}, "behavior": "Isolated", "invert": false},
			{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}},
	})
	if err != nil {
		panic(err)
	}
	return file, ranks
})

// halves returns the two tokens of lower rank that a token is made of.
func halves(token string, rank int, ranks map[string]int) (left, right string) {
	parts := strings.Split(token, "")
	parts = parts[:0]
	for i := range len(token) {
		parts = append(parts, token[i:i+1])
	}
	for len(parts) > 2 {
		best, lowest := -1, rank
		for i := range len(parts) - 1 {
			if r, ok := ranks[parts[i]+parts[i+1]]; ok && r < lowest {
				best, lowest = i, r
			}
		}
		parts[best] += parts[best+1]
		parts = slices.Delete(parts, best+1, best+2)
	}
	return parts[0], parts[1]
}

func loadCl100k(t testing.TB) *Tokenizer {
	t.Helper()
	file, _ := cl100k()
	tok, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// documents returns pages of the documentation, a source file and random bytes.
func documents(t testing.TB) (texts [][]byte) {
	t.Helper()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("%v, %v", pages, err)
	}
	for _, page := range append(pages[:8], "split.go", "testdata/qwen2.json.gz") {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, []byte(strings.ToValidUTF8(string(b), "\uFFFD")))
	}
	return texts
}

// TestTokensAreThoseOfTiktoken compares a vocabulary of usual size with another implementation.
func TestTokensAreThoseOfTiktoken(t *testing.T) {
	tok := loadCl100k(t)
	_, ranks := cl100k()
	core, err := tiktoken.NewCoreBPE(ranks, nil, llama3Pattern)
	if err != nil {
		t.Fatal(err)
	}
	reference := tiktoken.NewTiktoken(core, nil, nil)
	for _, text := range documents(t) {
		text = []byte(strings.ToValidUTF8(string(text[:min(len(text), 20_000)]), ""))
		want := reference.EncodeOrdinary(string(text))
		got := tok.Encode(nil, text)
		if !slices.EqualFunc(got, want, func(a uint32, b int) bool { return int(a) == b }) {
			t.Errorf("%d tokens, not %d, for %d bytes", len(got), len(want), len(text))
		}
	}
}

// BenchmarkEncode measures the documentation, and the worst texts: one long word and one long line
// of spaces.
func BenchmarkEncode(b *testing.B) {
	tok := loadCl100k(b)
	var docs []byte
	for _, text := range documents(b)[:8] {
		docs = append(docs, text...)
	}
	for name, text := range map[string][]byte{
		"docs": docs[:64<<10], "letters": []byte(strings.Repeat("a", 64<<10)), "words": []byte(strings.Repeat("xq", 32<<10)),
		"spaces": []byte(strings.Repeat(" ", 64<<10)), "brackets": []byte(strings.Repeat("<", 64<<10)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			var ids []uint32
			for b.Loop() {
				ids = tok.Encode(ids[:0], text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/token")
		})
	}
}

// BenchmarkParse measures the reading of a tokenizer.json with 100,256 tokens.
func BenchmarkParse(b *testing.B) {
	file, _ := cl100k()
	b.ReportAllocs()
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := Parse(file); err != nil {
			b.Fatal(err)
		}
	}
}
