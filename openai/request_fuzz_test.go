package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"
	"unicode/utf8"
)

// addSeeds adds bodies that reach most of the parser.
func addSeeds(f *testing.F) {
	for d := Other; d <= Audio; d++ {
		f.Add(byte(d), []byte(minimal[d]))
	}
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"é\ud83d\ude00\ud800"}],"stream":true,"stream_options":{"include_usage":false},"n":2}`,
		`{"mod\u0065l":"q","messages":[{"content":[{"type":"image","source":{"type":"text","data":"x"}}]}],"max_tokens":5,"user":"u"}`,
		`{"model":"a","Model":"b"}`, `{"model":"a","model":"b"}`, "{\"model\":\"\xff\"}", `{"ſtream":true}`,
		`{"a":[1,-0.5e+7,true,false,null,{"b":""}]}`, `{"a":01}`, `{"a":"\x"}`, `{} x`, `[`, ``,
		`{"cache_salt":"a\u00e9","model":"m","messages":[{}],"query":"q","input":"","stream":true}`, `{"cache_salt":[1]}`,
		`{"priority":-5,"model":"m","messages":[{}]}`, `{"model":"m","messages":[{}],"priority":"\u002d5"}`,
		`{"priority":[{"x":1}],"Priority":1}`,
		`{"priority":1,"pri\u006frity":2}`, `{"priority" : 1e3 ,"input":"x","model":"m"}`, `{"priority":null}`,
		`{"model":"m","cache_salt":null,"messages":[{}]}`, `{"Cache_salt":"a"}`, `{"model":0}`,
		`{"model":"m","input":[[1,2],"x"],"prompt":[1,2],"session_params":{"session_id":"s"},"store":true}`,
	} {
		f.Add(byte(Chat), []byte(body))
		f.Add(byte(Other), []byte(body))
		f.Add(byte(Embeddings), []byte(body))
	}
}

// FuzzParse compares with encoding/json: both must agree on validity and on the values of accepted
// bodies.
func FuzzParse(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, d byte, body []byte) {
		dialect := Dialect(d % byte(Audio+1))
		kept := bytes.Clone(body)
		r, err := Parse(dialect, body)
		if !bytes.Equal(kept, body) {
			t.Fatal("the body changed")
		}
		valid := json.Valid(body) && utf8.Valid(body) && bytes.TrimLeft(body, " \t\r\n")[0] == '{'
		var rejected *RequestError
		if err != nil {
			if !errors.As(err, &rejected) || rejected.Message == "" || !utf8.ValidString(rejected.Message) && utf8.Valid(body) {
				t.Fatalf("%#v", err)
			}
			if rejected.Reason == CodeInvalidJSON && valid {
				t.Fatalf("rejected valid JSON: %v", err)
			}
			return
		}
		if !valid {
			t.Fatal("accepted invalid JSON")
		}
		checkFields(t, r, body)
		checkSplice(t, r)
	})
}

// checkFields compares a request with the members of its body.
func checkFields(t *testing.T, r *Request, body []byte) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatal(err)
	}
	text := func(name string) string {
		var s string
		if json.Unmarshal(members[name], &s) != nil {
			return ""
		}
		return s
	}
	truth := func(name string) bool { return string(members[name]) == "true" }
	number := func(name string) (n int64) {
		if json.Unmarshal(members[name], &n) != nil {
			return 0
		}
		return n
	}
	if r.Model != text("model") || r.Stream != truth("stream") {
		t.Fatalf("model %q, stream %v", r.Model, r.Stream)
	}
	if r.CacheSalt != text("cache_salt") {
		t.Fatalf("CacheSalt %q, want %q", r.CacheSalt, text("cache_salt"))
	}
	checkPriority(t, r, members["priority"])
	if r.Dialect == Other {
		return
	}
	if want := max(number("max_tokens"), number("max_completion_tokens"), number("max_output_tokens")); r.MaxTokens !=
		want {
		t.Fatalf("MaxTokens %d, want %d", r.MaxTokens, want)
	}
	if want := max(number("n"), 1); r.N != want {
		t.Fatalf("N %d, want %d", r.N, want)
	}
	if r.Store != truth("store") || r.Background != truth("background") || r.ServiceTier != text("service_tier") {
		t.Fatalf("%+v", r)
	}
	if want := text("user"); len(want) <= maxIDBytes && r.User != want {
		t.Fatalf("User %q, want %q", r.User, want)
	}
	if r.PromptBytes < 0 || r.PromptBytes > int64(3*len(body)) || r.PromptTokens() > int64(3*len(body)) {
		t.Fatalf("%d bytes, %d tokens of %d", r.PromptBytes, r.PromptTokens(), len(body))
	}
}

// checkPriority compares the priority with the value that encoding/json reads.
func checkPriority(t *testing.T, r *Request, raw json.RawMessage) {
	var n *int64
	switch plain := json.Unmarshal(raw, &n) == nil && n != nil; {
	case plain && (!r.PriorityGiven || r.Priority != *n),
		!plain && r.PriorityGiven && r.Priority != math.MinInt64,
		!r.PriorityGiven && r.Priority != 0,
		r.PriorityGiven && len(raw) == 0:
		t.Fatalf("priority %s is %d, %v", raw, r.Priority, r.PriorityGiven)
	}
}

// checkSplice edits a request in all ways and parses the result.
func checkSplice(t *testing.T, r *Request) {
	checkSaltEdits(t, r)
	checkPriorityEdits(t, r)
	if got := r.Splice(Edit{Model: r.Model}); len(got) != 1 || !bytes.Equal(got[0], r.Body) {
		t.Fatalf("an edit that changes nothing made %q", bytes.Join(got, nil))
	}
	after := bytes.Join(r.Splice(Edit{Model: `a "new" name`, IncludeUsage: true}), nil)
	again, err := Parse(r.Dialect, after)
	if err != nil {
		// In a pass-through body, model may have any type and is not replaced.
		if r.Dialect == Other {
			return
		}
		t.Fatalf("%q became %q: %v", r.Body, after, err)
	}
	if r.Dialect == Other && again.Model == "" {
		return
	}
	streams := r.Stream && (r.Dialect == Chat || r.Dialect == Completions)
	if again.Model != `a "new" name` || again.IncludeUsage != (r.IncludeUsage || streams) ||
		again.PromptBytes != r.PromptBytes || again.PromptTokens() != r.PromptTokens() {
		t.Fatalf("%q became %q", r.Body, after)
	}
}

// checkSaltEdits edits the salt, with and without other edits.
func checkSaltEdits(t *testing.T, r *Request) {
	for _, e := range []Edit{{CacheSalt: "new"}, {CacheSalt: "new", Model: "other", IncludeUsage: true}} {
		after := bytes.Join(r.Splice(e), nil)
		again, err := Parse(r.Dialect, after)
		if r.Dialect == Other && r.Model == "" && e.Model != "" {
			continue // a model that is not a string stays, and a second one is added
		}
		if err != nil {
			t.Fatalf("%q became %q: %v", r.Body, after, err)
		}
		want := "new"
		if r.place.salt == (span{}) && !r.addsSalt(e) {
			want = ""
		}
		if again.CacheSalt != want {
			t.Fatalf("%q became %q", r.Body, after)
		}
	}
}

// checkPriorityEdits edits the priority, with and without other edits.
func checkPriorityEdits(t *testing.T, r *Request) {
	for _, e := range []Edit{{Priority: 7, SetPriority: true},
		{Priority: 7, SetPriority: true, CacheSalt: "new", IncludeUsage: true}} {
		after := bytes.Join(r.Splice(e), nil)
		again, err := Parse(r.Dialect, after)
		if err != nil {
			t.Fatalf("%q became %q: %v", r.Body, after, err)
		}
		set := again.PriorityGiven && again.Priority == 7
		kept := again.PriorityGiven == r.PriorityGiven && again.Priority == r.Priority
		if r.PriorityGiven && !set || !set && !kept || again.PromptTokens() != r.PromptTokens() {
			t.Fatalf("%q became %q", r.Body, after)
		}
		if added := slices.Contains(r.AddedFields(e), "priority"); added && !set {
			t.Fatalf("%q became %q, with a priority added", r.Body, after)
		}
	}
}
