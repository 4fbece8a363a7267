package tierscore

import (
	"bytes"
	"encoding/json"
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

// TestFeaturesAreStable: records are read by later releases. If the features change, Version must change too.
func TestFeaturesAreStable(t *testing.T) {
	const want = `{"v":1,"key":"af0cca2e","route":"b6d8b89d","counts":[0,16,3,4,1,3,2,25,3,9,10,2,2,3,1,1],` +
		`"words":"sQJ4N8gBbACCA4kCqQPkAkyIB9EBTY0KU78B3QKPA-MD_QqOAtEEjRvICfYB3QSOAtgD8wPFAVpi4QQ"}`
	if got := string(featuresOf(example()).AppendJSON(nil)); Version != 1 || got != want {
		t.Errorf("version %d:\n%s, want\n%s", Version, got, want)
	}
}

func TestCountsOfAText(t *testing.T) {
	c := featuresOf(example()).counts
	want := counts{Choices: 2, Question: questionWhat, Turns: 3, Tools: 1, System: 1}
	want.Classes = c.Classes
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	for class, n := range map[int]uint32{
		classDigit: 9, classQuestion: 1, classLine: 3, classTable: 2, classCode: 3, classForeign: 10, classUpper: 3,
	} {
		if c.Classes[class] != n {
			t.Errorf("class %d has %d bytes, want %d", class, c.Classes[class], n)
		}
	}
}

func TestKindsOfQuestions(t *testing.T) {
	for text, want := range map[string]uint32{
		"": questionNone, "Add two numbers.": questionNone, "And now?": questionOther, "How many are left?": questionHow,
		"It rains. Why does it rain?": questionWhy, "What?\nIs it?": questionYesNo, "He left: who is he?": questionFact,
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
	if n := featuresOf(&Input{User: []byte("数学 数")}).Words(); n != 5 { // 数, 学; ^数, 数学, 学数
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
		text, err := json.Marshal(f)
		if err != nil {
			rt.Fatal(err)
		}
		var got Features
		if err := json.Unmarshal(text, &got); err != nil || got != *f {
			rt.Errorf("%s is read with %v", text, err)
		}
	})
}

// TestEncodingHasNoText: no word of four or more bytes occurs, neither plain nor in the decoded buckets.
func TestEncodingHasNoText(t *testing.T) {
	secret := "zanzibar quixotic 4111111111111111 übermut 秘密の言葉 acmecorp"
	f := featuresOf(&Input{Tenant: "acmecorp", System: []byte(secret), User: []byte(secret)})
	text := string(f.AppendJSON(nil))
	for _, word := range strings.Fields(secret) {
		if strings.Contains(text, word) {
			t.Errorf("%s contains %s", text, word)
		}
	}
	// Words in another order, and as often as one likes, give the same buckets, but for their bigrams.
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
	f := featuresOf(&Input{User: text.Bytes()})
	if f.Words() > maxBuckets {
		t.Errorf("%d buckets", f.Words())
	}
	if n := len(f.AppendJSON(nil)); n > 6000 {
		t.Errorf("the record has %d bytes", n)
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
	for want, c := range map[string][2]string{
		"no version 1":           {`"v":1`, `"v":2`},
		"unknown field":          {`"v":1`, `"text":"x","v":1`},
		"key \"af\"":             {`"af0cca2e"`, `"af"`},
		"route \"zz\"":           {`"b6d8b89d"`, `"zz"`},
		"17 numbers":             {`[0,`, `[0,0,`},
		"not base64":             {`"words":"`, `"words":"!`},
		"a bucket above":         {`"words":"`, `"words":"____`},
		"cannot unmarshal":       {`"v":1`, `"v":"1"`},
		"counts of features are": {`[0,`, `[0,0,0,`},
	} {
		var f Features
		text := strings.Replace(good, c[0], c[1], 1)
		if err := json.Unmarshal([]byte(text), &f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if f != (Features{}) {
			t.Errorf("%s: the features are changed", want)
		}
	}
}
