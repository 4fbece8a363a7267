package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestSpliceChangesOnlyWhatTheEditNames(t *testing.T) {
	both, salt := Edit{Model: "new", IncludeUsage: true}, Edit{CacheSalt: "ours"}
	for _, tt := range []struct {
		name  string
		d     Dialect
		body  string
		edit  Edit
		want  string
		added string
	}{
		{"no edit", Chat, `{"model":"m","messages":[{}]}`, Edit{}, `{"model":"m","messages":[{}]}`, ""},
		{"model", Chat, ` { "model" : "m" , "messages":[{}] } `, Edit{Model: "new"},
			` { "model" : "new" , "messages":[{}] } `, ""},
		{"same model", Chat, `{"model":"\u006d","messages":[{}]}`, Edit{Model: "m"}, `{"model":"\u006d","messages":[{}]}`,
			""},
		{"escaped name", Chat, `{"mod\u0065l":"m","messages":[{}]}`, Edit{Model: "new"},
			`{"mod\u0065l":"new","messages":[{}]}`, ""},
		{"name that needs escapes", Chat, `{"model":"m","messages":[{}]}`, Edit{Model: "a\"b\\c\nd\x00é" + "\xff"},
			`{"model":"a\"b\\c\nd\u0000é` + "\ufffd" + `","messages":[{}]}`, ""},
		{"limit and thinking lowered", Messages,
			`{"thinking":{"type":"enabled","budget_tokens": 31999 },"model":"m","max_tokens":32000,"messages":[{}]}`,
			Edit{MaxTokens: 3933},
			`{"thinking":{"type":"enabled","budget_tokens": 3932 },"model":"m","max_tokens":3933,"messages":[{}]}`, ""},
		{"limit lowered above the thinking", Messages,
			`{"model":"m","max_tokens":32000,"messages":[{}],"thinking":{"budget_tokens":2000}}`, Edit{MaxTokens: 2001},
			`{"model":"m","max_tokens":2001,"messages":[{}],"thinking":{"budget_tokens":2000}}`, ""},
		{"thinking under a limit that stays", Messages,
			`{"model":"m","max_tokens":3000,"messages":[{}],"thinking":{"budget_tokens":5000}}`, Edit{MaxTokens: 3000},
			`{"model":"m","max_tokens":3000,"messages":[{}],"thinking":{"budget_tokens":5000}}`, ""},
		{"limit lowered beside another thinking", Chat,
			`{"max_tokens":32000,"thinking":null,"a":{"budget_tokens":9},"model":"m","messages":[{"thinking":{"budget_tokens":9999}}]}`,
			Edit{MaxTokens: 3933},
			`{"max_tokens":3933,"thinking":null,"a":{"budget_tokens":9},"model":"m","messages":[{"thinking":{"budget_tokens":9999}}]}`,
			""},
		{"model absent", Rerank, `{"query":"q"}`, Edit{Model: "new"}, `{"model":"new","query":"q"}`, "model"},
		{"model added to an empty body", Rerank, ` { } `, Edit{Model: "new"}, ` {"model":"new" } `, "model"},
		{"model null", Rerank, `{"model":null,"query":"q"}`, Edit{Model: "new"}, `{"model":"new","query":"q"}`, ""},
		{"model last", Chat, `{"messages":[{}],"model":"m"}`, Edit{Model: "new"}, `{"messages":[{}],"model":"new"}`, ""},
		{"no usage without a stream", Chat, `{"model":"m","messages":[{}]}`, both, `{"model":"new","messages":[{}]}`, ""},
		{"usage added", Chat, `{"model":"m","messages":[{}],"stream":true}`, both,
			`{"stream_options":{"include_usage":true},"model":"new","messages":[{}],"stream":true}`, "stream_options"},
		{"usage added to completions", Completions, `{"stream":true,"model":"m","prompt":""}`, Edit{IncludeUsage: true},
			`{"stream_options":{"include_usage":true},"stream":true,"model":"m","prompt":""}`, "stream_options"},
		{"usage requested by the client", Chat,
			`{"stream_options":{"include_usage":true},"model":"m","messages":[{}],"stream":true}`, both,
			`{"stream_options":{"include_usage":true},"model":"new","messages":[{}],"stream":true}`, ""},
		{"usage false from the client", Chat,
			`{"stream_options":{"include_usage" : false },"model":"m","messages":[{}],"stream":true}`, both,
			`{"stream_options":{"include_usage" : true },"model":"new","messages":[{}],"stream":true}`,
			"stream_options.include_usage"},
		{"usage null", Chat, `{"model":"m","messages":[{}],"stream":true,"stream_options":{"a":1,"include_usage":null}}`,
			both,
			`{"model":"new","messages":[{}],"stream":true,"stream_options":{"a":1,"include_usage":true}}`,
			"stream_options.include_usage"},
		{"other options", Chat, `{"model":"m","messages":[{}],"stream":true,"stream_options":{ "a":1}}`, both,
			`{"model":"new","messages":[{}],"stream":true,"stream_options":{"include_usage":true, "a":1}}`,
			"stream_options.include_usage"},
		{"usage with every chunk", Chat,
			`{"model":"m","messages":[{}],"stream":true,"stream_options":{"continuous_usage_stats" : true}}`, both,
			`{"model":"new","messages":[{}],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats" : false}}`, "stream_options.include_usage"},
		{"usage with every chunk, include_usage false", Chat,
			`{"model":"m","messages":[{}],"stream":true,"stream_options":{"include_usage":false,"continuous_usage_stats":1}}`,
			both,
			`{"model":"new","messages":[{}],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false}}`, "stream_options.include_usage"},
		{"usage with every chunk, requested", Chat,
			`{"stream_options":{"include_usage":true,"continuous_usage_stats":true},"model":"m","messages":[{}],"stream":true}`,
			both,
			`{"stream_options":{"include_usage":true,"continuous_usage_stats":true},"model":"new","messages":[{}],"stream":true}`, ""},
		{"empty options", Chat, `{"model":"m","messages":[{}],"stream":true,"stream_options":{ }}`, both,
			`{"model":"new","messages":[{}],"stream":true,"stream_options":{"include_usage":true }}`,
			"stream_options.include_usage"},
		{"options null", Chat, `{"stream_options":null,"stream":true,"messages":[{}],"model":"m"}`, both,
			`{"stream_options":{"include_usage":true},"stream":true,"messages":[{}],"model":"new"}`, "stream_options"},
		{"not in responses", Responses,
			`{"model":"m","input":"","stream":true,"stream_options":{"include_obfuscation":false}}`, both,
			`{"model":"new","input":"","stream":true,"stream_options":{"include_obfuscation":false}}`, ""},
		{"not in messages", Messages, `{"model":"m","messages":[{}],"stream":true}`, both,
			`{"model":"new","messages":[{}],"stream":true}`, ""},
		{"salt replaced", Chat, `{"model":"m", "cache_salt" : "his" ,"messages":[{}]}`, salt,
			`{"model":"m", "cache_salt" : "ours" ,"messages":[{}]}`, ""},
		{"salt null", Chat, `{"cache_salt":null,"model":"m","messages":[{}]}`, salt,
			`{"cache_salt":"ours","model":"m","messages":[{}]}`, ""},
		{"salt empty", Chat, `{"cache_salt":"","model":"m","messages":[{}]}`, salt,
			`{"cache_salt":"ours","model":"m","messages":[{}]}`, ""},
		{"escaped salt", Chat, `{"cache_s\u0061lt":"a\"b","model":"m","messages":[{}]}`, salt,
			`{"cache_s\u0061lt":"ours","model":"m","messages":[{}]}`, ""},
		{"salt added", Chat, `{"model":"m","messages":[{}]}`, salt, `{"cache_salt":"ours","model":"m","messages":[{}]}`,
			"cache_salt"},
		{"salt added to completions", Completions, `{"model":"m","prompt":""}`, salt,
			`{"cache_salt":"ours","model":"m","prompt":""}`, "cache_salt"},
		{"salt added to responses", Responses, `{"model":"m","input":""}`, salt,
			`{"cache_salt":"ours","model":"m","input":""}`, "cache_salt"},
		{"salt added to messages", Messages, `{"model":"m","messages":[{}]}`, salt,
			`{"cache_salt":"ours","model":"m","messages":[{}]}`, "cache_salt"},
		{"salt added to an empty body", Rerank, ` { } `, salt, ` {"cache_salt":"ours" } `, "cache_salt"},
		{"salt and model added to an empty body", Rerank, `{}`, Edit{Model: "new", CacheSalt: "ours"},
			`{"model":"new","cache_salt":"ours"}`, "model,cache_salt"},
		{"all added", Chat, `{"stream":true,"model":"m","messages":[{}]}`,
			Edit{Model: "new", IncludeUsage: true, CacheSalt: "ours"},
			`{"stream_options":{"include_usage":true},"cache_salt":"ours","stream":true,"model":"new","messages":[{}]}`,
			"cache_salt,stream_options"},
		{"all replaced, in the body's order", Chat,
			`{"cache_salt":"his","stream_options":{"include_usage":false},"model":"m","messages":[{}],"stream":true}`,
			Edit{Model: "new", IncludeUsage: true, CacheSalt: "ours"},
			`{"cache_salt":"ours","stream_options":{"include_usage":true},"model":"new","messages":[{}],"stream":true}`,
			"stream_options.include_usage"},
		{"no salt in a dialect without a cache", Tokenize, `{"prompt":"x"}`, salt, `{"prompt":"x"}`, ""},
		{"no salt for a pass-through endpoint", Other, `{"prompt":"x"}`, salt, `{"prompt":"x"}`, ""},
		{"salt replaced for a pass-through endpoint", Other, `{"prompt":"x","cache_salt":"his"}`, salt,
			`{"prompt":"x","cache_salt":"ours"}`, ""},
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

func TestSpliceSharesTheBody(t *testing.T) {
	r, err := Parse(Chat, chatOf(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	pieces := r.Splice(Edit{Model: "new", IncludeUsage: true})
	last := pieces[len(pieces)-1]
	if &last[len(last)-1] != &r.Body[len(r.Body)-1] {
		t.Error("the longest piece is a copy")
	}
	if n := testing.AllocsPerRun(20, func() { r.Splice(Edit{Model: "new", IncludeUsage: true}) }); n > 8 {
		t.Errorf("%v allocations", n)
	}
}

// member is one member of a drawn body.
type member struct {
	key, value string
}

// drawBody draws the members of a chat's body, with distinct names.
func drawBody(t *rapid.T) []member {
	escape := func(s string) string {
		if s != "" && rapid.Bool().Draw(t, "escape") {
			return fmt.Sprintf(`\u%04x`, s[0]) + s[1:]
		}
		return s
	}
	text := rapid.Custom(func(t *rapid.T) string {
		b, err := json.Marshal(rapid.String().Draw(t, "text"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	})
	one := func(name string, values ...string) member {
		return member{`"` + escape(name) + `"`, rapid.SampledFrom(values).Draw(t, name)}
	}
	members := []member{
		{`"model"`, `"` + escape(rapid.StringMatching(`[a-z][a-z0-9./-]{0,20}`).Draw(t, "model")) + `"`},
		{`"messages"`, `[{"role":"user","content":` + text.Draw(t, "content") + `}]`},
	}
	if rapid.Bool().Draw(t, "streams") {
		members = append(members, member{`"stream"`, "true"})
	}
	for _, optional := range []func() member{
		func() member {
			return one("stream_options", `null`, `{}`, `{"include_usage":true}`, `{"include_usage":false}`,
				`{"x":[{}],"include_usage":null}`, `{"x":{"include_usage":1}}`)
		},
		func() member { return one("max_tokens", "1", "100", "null") },
		func() member { return one("n", "1", "3", "null") },
		func() member { return one("user", `"u"`, `"\u00fc"`, "null", "5") },
		func() member { return one("session_id", `"s"`, "null") },
		func() member { return one("session_params", `{"session_id":"s2","x":{}}`, "{}") },
		func() member { return one("tools", "[]", `[{"type":"function"}]`, "null") },
		func() member { return one("service_tier", `"flex"`, "null") },
		func() member { return one("store", "true", "false", "null") },
		func() member { return one("cache_salt", `"s"`, `""`, `"\u00fc\""`, "null") },
		func() member { return one("priority", "5", "-5", "0", "null", `"5"`, "true", "-0.5e1") },
		func() member { return member{`"x-unknown"`, `{"model":"inner","deep":[1.50,-0e5,true,"\u0041"]}`} },
		func() member { // not "n": that is the name of a field
			return member{strings.Replace(text.Draw(t, "name of its own"), `"`, `"~`, 1), "1"}
		},
	} {
		if rapid.Bool().Draw(t, "has it") {
			members = append(members, optional())
		}
	}
	return members
}

// assemble returns a body of the members, with white space from space.
func assemble(members []member, space func() string) string {
	var b strings.Builder
	b.WriteString(space() + "{" + space())
	for i, m := range members {
		if i > 0 {
			b.WriteString(space() + "," + space())
		}
		b.WriteString(m.key + space() + ":" + space() + m.value)
	}
	b.WriteString(space() + "}" + space())
	return b.String()
}

func drawSpace(t *rapid.T) func() string {
	return func() string { return rapid.SampledFrom([]string{"", "", " ", "\n", "\t\r\n "}).Draw(t, "space") }
}

// The test removes the edited members from the body and from the result of Splice; the rest must be
// equal.
func TestSpliceKeepsAllOtherBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawBody(t)
		body := assemble(rapid.Permutation(members).Draw(t, "order"), drawSpace(t))
		r, err := Parse(Chat, []byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		e := Edit{Model: rapid.OneOf(rapid.Just(""), rapid.Just(r.Model), rapid.StringN(1, 20, 60)).Draw(t, "new model"),
			IncludeUsage: rapid.Bool().Draw(t, "usage"),
			CacheSalt:    rapid.SampledFrom([]string{"", "new", `"`}).Draw(t, "new salt"),
			Priority:     rapid.Int64().Draw(t, "new priority"), SetPriority: rapid.Bool().Draw(t, "sets priority")}
		if strings.ContainsRune(e.Model, '\ufffd') {
			t.Skip("not a name")
		}
		after := bytes.Join(r.Splice(e), nil)
		again, err := Parse(Chat, after)
		if err != nil {
			t.Fatalf("%s became %s: %v", body, after, err)
		}

		want := *r
		if e.Model != "" {
			want.Model = e.Model
		}
		if e.IncludeUsage && r.Stream {
			want.IncludeUsage = true
		}
		if e.CacheSalt != "" {
			want.CacheSalt = e.CacheSalt
		}
		if e.SetPriority {
			want.Priority, want.PriorityGiven = e.Priority, true
		}
		if diff := cmp.Diff(&want, again, cmpopts.IgnoreUnexported(Request{}),
			cmpopts.IgnoreFields(Request{}, "Body")); diff != "" {
			t.Fatalf("%s became %s:\n%s", body, after, diff)
		}
		if !e.IncludeUsage && e.CacheSalt == "" && !e.SetPriority {
			at := r.place.model
			if !bytes.HasPrefix(after, r.Body[:at.from]) || !bytes.HasSuffix(after, r.Body[at.to:]) ||
				len(after) != len(r.Body)-(at.to-at.from)+again.place.model.to-again.place.model.from {
				t.Fatalf("%s became %s", body, after)
			}
		}
		// All other members keep their raw bytes and their order.
		if before, now := otherMembers(t, []byte(body)), otherMembers(t, after); before != now {
			t.Fatalf("%s became %s:\n%s\n%s", body, after, before, now)
		}
	})
}

// otherMembers returns the raw members of a body in their order, except those that Splice may write.
func otherMembers(t *rapid.T, body []byte) string {
	r := Reader{b: body, limit: 64, strict: true}
	var b strings.Builder
	for r.Enter('{'); r.More('}'); {
		name := r.Key()
		f, value := fieldOf(Word(name)), r.Skip()
		if f != FieldModel && f != FieldStreamOptions && f != FieldCacheSalt && f != FieldPriority {
			fmt.Fprintf(&b, "%s:%s\n", name, value)
		}
	}
	if r.bad {
		t.Fatal(r.fail)
	}
	return b.String()
}

func TestOrderAndWhiteSpaceDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawBody(t)
		first, err := Parse(Chat, []byte(assemble(members, func() string { return "" })))
		if err != nil {
			t.Fatal(err)
		}
		body := assemble(rapid.Permutation(members).Draw(t, "order"), drawSpace(t))
		second, err := Parse(Chat, []byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if diff := cmp.Diff(first, second, cmpopts.IgnoreUnexported(Request{}),
			cmpopts.IgnoreFields(Request{}, "Body")); diff != "" {
			t.Fatalf("%s: %s", body, diff)
		}
		if first.PromptTokens() != second.PromptTokens() {
			t.Fatalf("%s: %d tokens, %d before", body, second.PromptTokens(), first.PromptTokens())
		}
	})
}
