package routing

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

type saidTerm struct {
	Name  string
	Value float64
}

func termsSaid(t Terms) (out []saidTerm) {
	t.All(func(name string, value float64) { out = append(out, saidTerm{name, value}) })
	return out
}

// TestInfiniteTermsAreWrittenAsNumbers: JSON has no infinity.
func TestInfiniteTermsAreWrittenAsNumbers(t *testing.T) {
	text, err := json.Marshal(Terms{names: &[maxTerms]string{"a", "b", "c"},
		values: [maxTerms]float64{math.Inf(1), math.Inf(-1), math.NaN()}})
	if want := `{"a":1.7976931348623157e+308,"b":-1.7976931348623157e+308,"c":0}`; string(text) != want || err != nil {
		t.Errorf("%s (%v), want %s", text, err, want)
	}
}

func TestTermsAreFoundByName(t *testing.T) {
	terms := Terms{names: &[maxTerms]string{"load", "ring"}, values: [maxTerms]float64{1.25, -2, 99}}
	for name, want := range map[string]float64{"load": 1.25, "ring": -2, "none": 0, "": 0} {
		if got := terms.Get(name); got != want {
			t.Errorf("%q is %v, want %v", name, got, want)
		}
	}
	if (Terms{}).Get("load") != 0 || !(Terms{}).IsZero() || terms.IsZero() {
		t.Error("empty terms are not zero")
	}
}

// TestAChainIsRecordedByItsLandmarks: the first sixteen blocks, then eight per octave, and the last.
func TestAChainIsRecordedByItsLandmarks(t *testing.T) {
	for blocks, want := range map[int]int{0: 0, 1: 1, 2: 2, 16: 16, 17: 17, 32: 25, 64: 33, 4096: 81, 65536: 113} {
		chain := make([]Block, blocks)
		for i := range chain {
			chain[i] = Block{Hash: uint64(i), End: int64(i)}
		}
		got := AppendChain(nil, chain)
		if len(got) != want || want > 0 && got[want-1].Hash != uint64(blocks-1) {
			t.Errorf("of %d blocks: %d links up to %v, want %d", blocks, len(got), got[max(0, len(got)-1):], want)
		}
		if cap(got) > len(got) {
			t.Errorf("of %d blocks: room for %d links is kept of %d", blocks, cap(got), len(got))
		}
		if n := testing.AllocsPerRun(10, func() { AppendChain(nil, chain) }); n > 1 {
			t.Errorf("of %d blocks: %v allocations", blocks, n)
		}
		for i, l := range got {
			if i < min(16, blocks) && l.Hash != uint64(i) || i > 0 && got[i-1].End >= l.End {
				t.Errorf("of %d blocks link %d is %v", blocks, i, l)
			}
		}
	}
}

// FuzzHash: a text that is accepted is written again as the same 16 digits.
func FuzzHash(f *testing.F) {
	for _, seed := range []string{"", "0", "0123456789abcdef", "0123456789ABCDEF", "ffffffffffffffff", "+123456789abcdef",
		"0x00000000000001", "00000000000000_1", "0123456789abcdefg"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var h Hash
		if h.UnmarshalText([]byte(text)) != nil {
			if len(text) == 16 && strings.Trim(text, "0123456789abcdefABCDEF") == "" {
				t.Fatalf("%q is refused", text)
			}
			return
		}
		if back, err := h.MarshalText(); err != nil || string(back) != strings.ToLower(text) {
			t.Fatalf("%q is written as %q (%v)", text, back, err)
		}
	})
}

// FuzzLink: a text that is accepted is a hash and the end of its block, and survives a round trip.
func FuzzLink(f *testing.F) {
	for _, seed := range []string{"", ":", "0123456789abcdef:0", "0123456789abcdef:64", "0123456789abcdef:-1",
		"0123456789abcdef", "0123456789abcdef:64:1", "0123456789abcdef:9223372036854775808", "1:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l, again Link
		if l.UnmarshalText([]byte(text)) != nil {
			return
		}
		back, err := l.MarshalText()
		if err != nil || again.UnmarshalText(back) != nil || again != l || l.End < 0 ||
			!strings.HasPrefix(strings.ToLower(text), Hash(l.Hash).digits()+":") {
			t.Fatalf("%q is written as %q (%v)", text, back, err)
		}
	})
}

func (h Hash) digits() string { return string(h.append(nil)) }

// FuzzTerms: a text is refused, or read as at most four numbers that survive a round trip.
func FuzzTerms(f *testing.F) {
	for _, seed := range []string{"", "{}", "null", "[1]", `"x"`, `{"load":1.5}`, `{"a":1,"b":-2,"c":3e9,"d":0,"e":5}`,
		`{"a":"1"}`, `{"a":1e999}`, `{"":1}`, `{"a":1,"a":2}`, `{"a":1`, `{"a":{}}`, `{"a":null}`, `{"\u001b":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var terms, again Terms
		if !json.Valid(text) || json.Unmarshal(text, &terms) != nil {
			return
		}
		said := termsSaid(terms)
		back, err := json.Marshal(terms)
		if err != nil || len(said) > maxTerms {
			t.Fatalf("%s is read as %v, and written as %s (%v)", text, said, back, err)
		}
		if err := json.Unmarshal(back, &again); err != nil || !cmp.Equal(said, termsSaid(again)) {
			t.Fatalf("%s is read as %v, and again as %v (%v)", text, said, termsSaid(again), err)
		}
	})
}

// TestAChainHasTheJSONOfItsLinks, nil, empty or with several, and is read back from it.
func TestAChainHasTheJSONOfItsLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Chain
		if rapid.Bool().Draw(t, "made") {
			c = Chain{}
		}
		for range rapid.IntRange(0, 5).Draw(t, "links") {
			c = append(c, Link{Hash: rapid.Uint64().Draw(t, "hash"), End: rapid.Int64Min(0).Draw(t, "end")})
		}
		want, err := json.Marshal([]Link(c))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(c)
		if err != nil || string(got) != string(want) {
			t.Fatalf("%s, not %s: %v", got, want, err)
		}
		var back Chain
		if err := json.Unmarshal(got, &back); err != nil || !slices.Equal(back, c) {
			t.Fatalf("%v is read as %v: %v", c, back, err)
		}
	})
}
