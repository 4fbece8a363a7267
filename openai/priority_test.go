package openai

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// withMember returns a minimal body of the dialect with one more member.
func withMember(d Dialect, member string) string {
	body := strings.TrimSuffix(minimal[d], "}")
	if body != "{" {
		body += ","
	}
	return body + member + "}"
}

// QU-08: the client's priority in the engine's queue is read in every dialect and every spelling. No
// value of it is an error.
func TestPrioritiesAreReadInEveryDialect(t *testing.T) {
	type read struct {
		Value int64
		Given bool
	}
	odd := read{math.MinInt64, true}
	for d := range minimal {
		for value, want := range map[string]read{
			"5": {5, true}, "0": {0, true}, "-0": {0, true}, "-7": {-7, true},
			"9223372036854775807": {math.MaxInt64, true}, "-9223372036854775808": {math.MinInt64, true},
			"-1000000000000000000": {-1e18, true},
			"9223372036854775808":  odd, "-92233720368547758080": odd, "5.0": odd, "-1e2": odd, `"-5"`: odd,
			`"\u002d\u0035"`: odd,
			`"٥"`:            odd, "true": odd, "false": odd,
			"null": {}, `"high"`: {}, `""`: {}, "[-5]": {}, `{"a":-5}`: {},
		} {
			r, err := Parse(d, []byte(withMember(d, `"priority":`+value)))
			if err != nil {
				t.Errorf("%s %s: %v", d, value, err)
				continue
			}
			if got := (read{r.Priority, r.PriorityGiven}); got != want {
				t.Errorf("%s %s: %+v, want %+v", d, value, got, want)
			}
		}
		r, err := Parse(d, []byte(withMember(d, `"x":{"priority":3},"my_priority":4`)))
		if err != nil || r.PriorityGiven || r.Priority != 0 {
			t.Errorf("%s without a priority: %+v, %v", d, r, err)
		}
	}
}

// Engines differ in which of two values they use.
func TestDuplicatePriorityIsRejectedInAnySpelling(t *testing.T) {
	for d := range minimal {
		for _, members := range []string{`"priority":20,"priority":-5`, `"priority":null,"priority":-5`,
			`"priority":20,"pri\u006frity":-5`,
			`"priority":20,"Priority":-5`, `"PRIORITY":-5`, `"prıority":-5`} {
			got := parseError(t, d, withMember(d, members))
			if diff := cmp.Diff([]string{string(CodeAmbiguousJSON), "priority"},
				[]string{string(got.Reason), got.Param}); diff != "" {
				t.Errorf("%s %s: %s", d, members, diff)
			}
		}
	}
}

func TestSpliceSetsThePriority(t *testing.T) {
	ten, zero := Edit{Priority: 10, SetPriority: true}, Edit{SetPriority: true}
	for _, tt := range []struct {
		name  string
		d     Dialect
		body  string
		edit  Edit
		want  string
		added string
	}{
		{"not set", Chat, `{"model":"m","messages":[{}],"priority":5}`, Edit{Priority: 10},
			`{"model":"m","messages":[{}],"priority":5}`, ""},
		{"added", Chat, `{"model":"m","messages":[{}]}`, ten, `{"priority":10,"model":"m","messages":[{}]}`, "priority"},
		{"added to completions", Completions, `{"model":"m","prompt":""}`, ten, `{"priority":10,"model":"m","prompt":""}`,
			"priority"},
		{"added to responses", Responses, `{"model":"m","input":""}`, ten, `{"priority":10,"model":"m","input":""}`,
			"priority"},
		{"added to embeddings", Embeddings, `{"model":"m","input":""}`, ten, `{"priority":10,"model":"m","input":""}`,
			"priority"},
		{"added to an empty body", Rerank, ` { } `, ten, ` {"priority":10 } `, "priority"},
		{"all added to an empty body", Score, `{}`, Edit{Model: "m", CacheSalt: "s", Priority: -3, SetPriority: true},
			`{"model":"m","cache_salt":"s","priority":-3}`, "model,cache_salt,priority"},
		{"replaced", Chat, `{"model":"m", "priority" : -5 ,"messages":[{}]}`, ten,
			`{"model":"m", "priority" : 10 ,"messages":[{}]}`, ""},
		{"escaped name", Chat, `{"pri\u006frity":-5,"model":"m","messages":[{}]}`, ten,
			`{"pri\u006frity":10,"model":"m","messages":[{}]}`, ""},
		{"replaced by 0", Chat, `{"priority":-5,"model":"m","messages":[{}]}`, zero,
			`{"priority":0,"model":"m","messages":[{}]}`, ""},
		{"a number in quotes", Chat, `{"priority":"-5","model":"m","messages":[{}]}`, zero,
			`{"priority":0,"model":"m","messages":[{}]}`, ""},
		{"0, as good as none", Chat, `{"priority":0,"model":"m","messages":[{}]}`, ten,
			`{"priority":10,"model":"m","messages":[{}]}`, "priority"},
		{"0 by 0", Chat, `{"priority":0,"model":"m","messages":[{}]}`, zero, `{"priority":0,"model":"m","messages":[{}]}`,
			""},
		{"null", Chat, `{"priority":null,"model":"m","messages":[{}]}`, ten, `{"priority":10,"model":"m","messages":[{}]}`,
			"priority"},
		{"a word", Chat, `{"priority":"high","model":"m","messages":[{}]}`, ten,
			`{"priority":"high","model":"m","messages":[{}]}`, ""},
		{"an object", Chat, `{"priority":{"a":[1]},"model":"m","messages":[{}]}`, ten,
			`{"priority":{"a":[1]},"model":"m","messages":[{}]}`, ""},
		{"last", Chat, `{"model":"m","messages":[{}],"priority":7}`, ten, `{"model":"m","messages":[{}],"priority":10}`, ""},
		{"none in Messages", Messages, `{"model":"m","messages":[{}]}`, ten, `{"model":"m","messages":[{}]}`, ""},
		{"none for a pass-through endpoint", Other, `{"prompt":"x"}`, ten, `{"prompt":"x"}`, ""},
		{"replaced for a pass-through endpoint", Other, `{"prompt":"x","priority":-5}`, ten, `{"prompt":"x","priority":10}`,
			""},
		{"word for a pass-through endpoint", Other, `{"priority":"high"}`, ten, `{"priority":"high"}`, ""},
		{"with all other edits", Chat, `{"stream":true,"model":"m","messages":[{}]}`,
			Edit{Model: "new", IncludeUsage: true, CacheSalt: "s", Priority: 20, SetPriority: true},
			`{"stream_options":{"include_usage":true},"cache_salt":"s","priority":20,"stream":true,"model":"new","messages":[{}]}`,
			"cache_salt,priority,stream_options"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Parse(tt.d, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(bytes.Join(r.Splice(tt.edit), nil)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if got := strings.Join(r.AddedFields(tt.edit), ","); got != tt.added {
				t.Errorf("added %q, want %q", got, tt.added)
			}
			if string(r.Body) != tt.body {
				t.Errorf("the body changed: %s", r.Body)
			}
		})
	}
}

func TestAFormHasNoPriority(t *testing.T) {
	body := "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n"
	r, err := ParseMultipart("multipart/form-data; boundary=b", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Dialect = Embeddings // any dialect
	e := Edit{Priority: 10, SetPriority: true}
	if got := string(bytes.Join(r.Splice(e), nil)); got != body || len(r.AddedFields(e)) != 0 {
		t.Errorf("became %q", got)
	}
}

func TestEnginePriorities(t *testing.T) {
	const none = math.MaxInt32 // means a request without a priority
	for _, tt := range []struct {
		class int
		own   int64
		value int64
		set   bool
	}{
		{0, none, 0, false}, {1, none, 10, true}, {2, none, 20, true}, {-1, none, 0, false},
		{0, 0, 0, false}, {0, 5, 5, false}, {0, -1, 0, true}, {0, math.MinInt64, 0, true},
		{0, math.MaxInt64, math.MaxInt64, false},
		{1, 0, 10, true}, {1, 9, 10, true}, {1, 10, 10, false}, {1, 15, 15, false}, {1, -100, 10, true},
		{2, 0, 20, true}, {2, 10, 20, true}, {2, 20, 20, false}, {2, 21, 21, false}, {2, math.MinInt64, 20, true},
	} {
		own, given := tt.own, tt.own != none
		if !given {
			own = 0
		}
		if value, set := EnginePriority(tt.class, own, given); value != tt.value || set != tt.set {
			t.Errorf("class %d, own %d (%v): %d, %v, want %d, %v", tt.class, own, given, value, set, tt.value, tt.set)
		}
	}
}

// QU-08: for every body of a client, an engine that schedules by priority never reads a number before
// that of the class.
func TestPriorityIsNeverBeforeTheClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		class := rapid.IntRange(0, 2).Draw(t, "class")
		value := rapid.OneOf(
			rapid.StringMatching(`-?(0|[1-9][0-9]{0,21})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?`),
			rapid.StringMatching(`"[ +-]?[0-9_]{0,4}[.0]{0,2}[a-z]{0,2}"`),
			rapid.SampledFrom([]string{"null", "true", "false", `"high"`, "[]", "{}"}),
		).Draw(t, "priority")
		r, err := Parse(Chat, []byte(withMember(Chat, `"priority":`+value)))
		if err != nil {
			t.Fatal(err)
		}
		e := Edit{}
		e.Priority, e.SetPriority = EnginePriority(class, r.Priority, r.PriorityGiven)
		after := bytes.Join(r.Splice(e), nil)
		again, err := Parse(Chat, after)
		if err != nil {
			t.Fatalf("%s: %v", after, err)
		}
		if again.PriorityGiven && again.Priority < int64(10*class) {
			t.Fatalf("class %d: %s became %s", class, value, after)
		}
		if value, set := EnginePriority(class, again.Priority, again.PriorityGiven); set && again.PriorityGiven {
			t.Fatalf("class %d: a second edit of %s sets %d", class, after, value)
		}
		// Without the added field, for an engine that rejects it, the body is the client's.
		if len(r.AddedFields(e)) > 0 {
			e.SetPriority = false
			if got := bytes.Join(r.Splice(e), nil); !bytes.Equal(got, r.Body) || r.PriorityGiven && r.Priority < 0 {
				t.Fatalf("class %d: %s is sent again as %s", class, value, got)
			}
		}
	})
}

func TestEnginesThatTakeAPriority(t *testing.T) {
	for e, want := range map[Engine]bool{EngineVLLM: true, EngineSGLang: false, EngineAuto: false, EngineLlamaCpp: false,
		EngineOllama: false, EngineOpenAI: false, "": false} {
		if got := e.TakesPriority(); got != want {
			t.Errorf("%q takes a priority: %v", e, got)
		}
	}
}
