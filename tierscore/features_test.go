package tierscore

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// example is a request with words, digits, choices, a question and characters outside ASCII.
func example() *Input {
	return &Input{
		Tenant: "acme", System: []byte("Answer with one letter."), Turns: 3, Tools: true,
		User: []byte("A naïve café sold 12 cups. What is `x` in 3x = 36?\nA. 10\n(b) 12\n| 数学 |"),
	}
}

func featuresOf(in *Input) *Features {
	f := &Features{}
	NewExtractor("key").Extract(f, in)
	return f
}

// TestFeaturesAreStable: lines of features are read by later releases. If the features change, Version must change too.
func TestFeaturesAreStable(t *testing.T) {
	const want = `{"v":1,"key":"af0cca2e","route":"b6d8b89d","counts":[0,16,3,4,1,3,2,25,3,9,10,2,2,3,1,1],` +
		`"words":"sQJ4N8gBbACCA4kCqQPkAkyIB9EBTY0KU78B3QKPA-MD_QqOAtEEjRvICfYB3QSOAtgD8wPFAVpi4QQ"}`
	f := featuresOf(example())
	if got := string(f.AppendJSON(nil)); Version != 1 || got != want {
		t.Errorf("version %d:\n%s, want\n%s", Version, got, want)
	}
	const wantColumns = "163f3a27ffdb08a3"
	if got := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, f.AppendColumns(nil))))[:16]; got != wantColumns {
		t.Errorf("version %d: the columns have the hash %s, want %s", Version, got, wantColumns)
	}
}

func TestCountsOfAText(t *testing.T) {
	c := featuresOf(example()).counts
	want := counts{Choices: 2, Question: questionWhat, Turns: 3, Tools: 1, System: 1}
	want.Kinds = c.Kinds
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	for kind, n := range map[int]uint32{
		byteDigit: 9, byteQuestion: 1, byteLine: 3, byteTable: 2, byteCode: 3, byteForeign: 10, byteUpper: 3,
	} {
		if c.Kinds[kind] != n {
			t.Errorf("kind %d has %d bytes, want %d", kind, c.Kinds[kind], n)
		}
	}
}

func TestKindsOfQuestions(t *testing.T) {
	for text, want := range map[string]uint32{
		"": questionNone, "Add two numbers.": questionNone, "And now?": questionOther, "How many are left?": questionHow,
		"It rains. Why does it rain?": questionWhy,
		"Is 3.5 at 10:30 more?":       questionYesNo, "See a.b: what is it?": questionWhat,
		"Stop!\nWhy?": questionWhy, "What?\nIs it?": questionYesNo, "He left: who is he?": questionFact,
	} {
		if got := featuresOf(&Input{User: []byte(text)}).counts.Question; got != want {
			t.Errorf("%q is a question of kind %d, want %d", text, got, want)
		}
	}
}

func TestWordsAreFoldedAndHashedWithTheirNeighbours(t *testing.T) {
	words := func(text string) [WordColumns / 64]uint64 { return featuresOf(&Input{User: []byte(text)}).seen }
	if words("Solve THIS") != words("solve, this!") {
		t.Error("case or punctuation changes words")
	}
	if words("solve this") == words("this solve") {
		t.Error("the order of neighbours changes nothing")
	}
	if n := featuresOf(&Input{User: []byte("数学 数")}).WordCount(); n != 5 { // 数, 学; ^数, 数学, 学数
		t.Errorf("two characters have %d words and bigrams, want 5", n)
	}
}

func TestRouteIsTenantAndSystemPrompt(t *testing.T) {
	base := featuresOf(&Input{Tenant: "a", System: []byte("long system prompt")}).Route()
	for name, in := range map[string]*Input{
		"another tenant":   {Tenant: "b", System: []byte("long system prompt")},
		"another prompt":   {Tenant: "a", System: []byte("long system Prompt")},
		"a moved boundary": {Tenant: "al", System: []byte("ong system prompt")},
		"no prompt":        {Tenant: "a"},
	} {
		if featuresOf(in).Route() == base {
			t.Errorf("%s has the same route", name)
		}
	}
	if featuresOf(&Input{Tenant: "a", System: []byte("long system prompt"), User: []byte("x"), Turns: 9}).Route() != base {
		t.Error("the user's text changes the route")
	}
}

func TestKeysGiveOtherFeatures(t *testing.T) {
	var a, b Features
	NewExtractor("a").Extract(&a, example())
	NewExtractor("b").Extract(&b, example())
	if a.Key() == b.Key() || a.Route() == b.Route() || a.seen == b.seen {
		t.Error("features of two keys are equal")
	}
	if a.counts != b.counts {
		t.Errorf("counts depend on the key: %+v and %+v", a.counts, b.counts)
	}
}

func TestEncodingReturnsTheFeatures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := featuresOf(&Input{
			Tenant: rapid.String().Draw(rt, "tenant"), User: []byte(rapid.String().Draw(rt, "user")),
			Turns: rapid.IntRange(0, 1<<20).Draw(rt, "turns"), Tools: rapid.Bool().Draw(rt, "tools"),
		})
		text := f.AppendJSON(nil)
		var got Features
		if err := json.Unmarshal(text, &got); err != nil || got != *f {
			rt.Errorf("%s is read with %v", text, err)
		}
	})
}

// TestEncodingHasNoText: no word occurs, neither plain nor in the decoded buckets.
func TestEncodingHasNoText(t *testing.T) {
	secret := "zanzibar quixotic 4111111111111111 übermut 秘密の言葉 acmecorp"
	f := featuresOf(&Input{Tenant: "acmecorp", System: []byte(secret), User: []byte(secret)})
	text := string(f.AppendJSON(nil))
	var r encoded
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	buckets, err := base64.RawURLEncoding.DecodeString(r.Words)
	if err != nil || len(buckets) < f.WordCount() {
		t.Fatalf("%d bytes of %d buckets: %v", len(buckets), f.WordCount(), err)
	}
	for _, word := range strings.Fields(secret) {
		if strings.Contains(text, word) || bytes.Contains(buckets, []byte(word)) {
			t.Errorf("%s contains %s", text, word)
		}
	}
	once, often := featuresOf(&Input{User: []byte("a a")}), featuresOf(&Input{User: []byte("a a a a")})
	if once.seen != often.seen {
		t.Error("the number of words can be read")
	}
}

func TestLongTextsHaveALimitedRecord(t *testing.T) {
	var text bytes.Buffer
	for i := range 20_000 {
		text.WriteString(strings.Repeat("w", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + " ")
	}
	if n := len(featuresOf(&Input{User: text.Bytes()}).AppendJSON(nil)); n > 22<<10 {
		t.Errorf("the features have %d bytes", n)
	}
	all := Features{buckets: WordColumns}
	for i := range all.seen {
		all.seen[i] = math.MaxUint64
	}
	if n := len(all.AppendJSON(nil)); n > 22<<10 {
		t.Errorf("the features with all buckets have %d bytes", n)
	}
}

// TestEndOfALongTextHasFeatures: the last words often are the question.
func TestEndOfALongTextHasFeatures(t *testing.T) {
	var text bytes.Buffer
	for i := range 4000 {
		fmt.Fprintf(&text, "%d ", i)
	}
	before := featuresOf(&Input{User: text.Bytes()})
	text.WriteString("zebra quagga okapi")
	if after := featuresOf(&Input{User: text.Bytes()}); after.WordCount() == before.WordCount() {
		t.Error("the last words of a long text set no bucket")
	}
}

func TestRunsFillTheColumnsOfCounts(t *testing.T) {
	sum := questions
	for _, r := range runs {
		sum += r.levels
	}
	if sum != structureBuckets {
		t.Errorf("the runs and questions have %d buckets, not %d", sum, structureBuckets)
	}
}

func TestColumnsRise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		columns := featuresOf(&Input{User: []byte(rapid.String().Draw(rt, "user"))}).AppendColumns(nil)
		if !slices.IsSorted(columns) || len(slices.Compact(slices.Clone(columns))) != len(columns) ||
			columns[len(columns)-1] >= Columns {
			rt.Errorf("%v", columns)
		}
	})
}

func TestExtractDoesNotAllocate(t *testing.T) {
	e, in, f := NewExtractor("key"), example(), &Features{}
	if n := testing.AllocsPerRun(100, func() { e.Extract(f, in) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkExtract(b *testing.B) {
	const question = "A train leaves at 9 and travels 120 km; how many hours does it take at 60 km/h? "
	text := []byte(strings.Repeat(question, 13)[:1024])
	e, in, f := NewExtractor("key"), &Input{Tenant: "acme", User: text}, &Features{}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		e.Extract(f, in)
	}
}

func FuzzFeatures(f *testing.F) {
	f.Add(featuresOf(example()).AppendJSON(nil))
	f.Add([]byte(`{"v":1,"key":"00000000","route":"00000000","counts":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"words":"_____w"}`))
	m := testModel(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		var read, again Features
		if read.UnmarshalJSON(text) != nil {
			return
		}
		if err := again.UnmarshalJSON(read.AppendJSON(nil)); err != nil || again != read {
			t.Errorf("%v: what was read is written as %s", err, read.AppendJSON(nil))
		}
		checkScore(t, m, &read)
	})
}

func TestMalformedFeaturesAreErrors(t *testing.T) {
	good := string(featuresOf(example()).AppendJSON(nil))
	for _, c := range []struct{ want, old, replacement string }{
		{"no version 1", `"v":1`, `"v":2`},
		{"no object of v, key, route, counts and words", `"v":1`, `"text":"x","v":1`},
		{"key is no hash", `"af0cca2e"`, `"af"`},
		{"route is no hash", `"b6d8b89d"`, `"zz"`},
		{"17 numbers", `[0,`, `[0,0,`},
		{"not base64", `"words":"`, `"words":"!`},
		{"a bucket above", `"words":"`, `"words":"____`},
		{"no object of v, key, route, counts and words", `"v":1`, `"v":"1"`},
		{"18 numbers", `[0,`, `[0,0,0,`},
	} {
		var f Features
		text := strings.Replace(good, c.old, c.replacement, 1)
		if err := json.Unmarshal([]byte(text), &f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
		if f != (Features{}) {
			t.Errorf("%s: the features are changed", c.want)
		}
	}
}
