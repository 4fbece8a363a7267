package answers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed" // rapid draws the same values in each run
	"tierway/openai"
)

// readForm returns the form of a chat.
func readForm(t interface{ Fatal(...any) }, d openai.Dialect, body string) Form {
	r, err := openai.Parse(d, []byte(body))
	if err != nil {
		t.Fatal(err, body)
	}
	f := new(FormReader).Read(r, false, true)
	f.Text = slices.Clone(f.Text)
	return f
}

// value is a JSON value with members in an order of its own.
type value struct {
	text    string // of a scalar, in JSON
	names   []string
	members []value // of an object, or of an array without names
	object  bool
}

// write returns the value in JSON with the notation that draw selects.
func (v *value) write(draw func(label string, n int) int) string {
	space := func() string { return strings.Repeat(" ", draw("space", 2)) }
	switch {
	case v.text != "" && v.text[0] == '"' && draw("escape", 2) == 1:
		var s string
		_ = json.Unmarshal([]byte(v.text), &s)
		b := `"`
		for _, c := range s {
			if c > 0xffff {
				b += string(c)
				continue
			}
			b += fmt.Sprintf(`\u%04x`, c)
		}
		return b + `"`
	case v.text != "":
		return v.text
	}
	order := make([]int, len(v.members))
	for i := range order {
		order[i] = i
	}
	if v.object {
		for i := range order {
			j := i + draw("order", len(order)-i)
			order[i], order[j] = order[j], order[i]
		}
	}
	var parts []string
	for _, i := range order {
		part := v.members[i].write(draw)
		if v.object {
			part = (&value{text: v.names[i]}).write(draw) + space() + ":" + space() + part
		}
		parts = append(parts, space()+part+space())
	}
	if v.object {
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// drawValue draws a value of at most a depth.
func drawValue(t *rapid.T, depth int) value {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return value{text: rapid.SampledFrom([]string{"0", "1", "1.5", "-2", "1e3", "10"}).Draw(t, "number")}
	case 1:
		return value{text: rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "word")}
	case 2, 3:
		return value{text: rapid.SampledFrom([]string{`""`, `"a"`, `"ä"`, `"a\"b"`, `"\\"`, `"1"`, `"null"`, `"a,b"`, `"\u0000"`, `"😀"`,
			`"a\nb"`}).Draw(t, "text")}
	}
	n := rapid.IntRange(0, 3).Draw(t, "size")
	v := value{object: kind == 4}
	for i := range n {
		v.members = append(v.members, drawValue(t, depth-1))
		v.names = append(v.names, fmt.Sprintf(`"%c%d"`, 'a'+rapid.IntRange(0, 2).Draw(t, "letter"), i))
	}
	return v
}

// leaves returns the scalars of a value.
func (v *value) leaves() (all []*value) {
	if v.text != "" {
		return []*value{v}
	}
	for i := range v.members {
		all = append(all, v.members[i].leaves()...)
	}
	return all
}

// TestFormsAreEqualForEqualJSONOnly: the notation of a body does not change its form, and every other scalar does (C2).
func TestFormsAreEqualForEqualJSONOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 3)
		body := func(draw func(string, int) int) string {
			top := value{object: true, names: []string{`"model"`, `"messages"`, `"x"`, `"user"`}, members: []value{{text: `"m"`},
				{members: []value{{object: true, names: []string{`"role"`, `"content"`}, members: []value{{text: `"user"`},
					{text: `"hi"`}}}}}, v, {text: fmt.Sprintf(`"%d"`, draw("user", 100))}}}
			// The names that the gateway reads have no escapes.
			return strings.NewReplacer(`\u006d\u006f\u0064\u0065\u006c`, "model", `\u0072\u006f\u006c\u0065`, "role").
				Replace(top.write(draw))
		}
		plain := func(string, int) int { return 0 }
		drawn := func(label string, n int) int {
			if n < 2 {
				return 0
			}
			return rapid.IntRange(0, n-1).Draw(t, label)
		}
		a, b := readForm(t, openai.Chat, body(plain)), readForm(t, openai.Chat, body(drawn))
		if a.Exact != b.Exact || a.Rest != b.Rest || a.Bypass != "" {
			t.Fatalf("the notation changes the form of %s", body(plain))
		}
		leaves := v.leaves()
		if len(leaves) == 0 {
			return
		}
		leaf := leaves[rapid.IntRange(0, len(leaves)-1).Draw(t, "leaf")]
		was, now := leaf.text, drawValue(t, 0).text
		if leaf.text = now; now != was && readForm(t, openai.Chat, body(plain)).Exact == a.Exact {
			t.Fatalf("%s instead of %s does not change the form of %s", now, was, body(plain))
		}
	})
}

// TestFormSeparatesTheLastText: the last text of the user is not part of Rest, and everything else is.
func TestFormSeparatesTheLastText(t *testing.T) {
	for _, c := range []struct {
		d            openai.Dialect
		body, text   string
		sameRest     string // differs in the last text only
		differentOne string
	}{
		{openai.Chat, `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"bä\n"}]}`, "bä\n",
			`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"c"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"c"},{"role":"user","content":"bä\n"}]}`},
		{openai.Chat, `{"model":"m","messages":[{"content":[{"type":"text","text":"x"},{"type":"text","text":"b"}],"role":"user"}]}`, "b",
			`{"model":"m","messages":[{"content":[{"type":"text","text":"x"},{"type":"text","text":"c"}],"role":"user"}]}`,
			`{"model":"m","messages":[{"content":[{"type":"text","text":"y"},{"type":"text","text":"b"}],"role":"user"}]}`},
		{openai.Chat, `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, "",
			`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"c"}]}`},
		{openai.Messages, `{"model":"m","max_tokens":1,"system":"s","messages":[{"role":"user","content":"b"}]}`, "b",
			`{"model":"m","max_tokens":1,"system":"s","messages":[{"role":"user","content":"c"}]}`,
			`{"model":"m","max_tokens":1,"system":"t","messages":[{"role":"user","content":"b"}]}`},
		{openai.Completions, `{"model":"m","prompt":"b","suffix":"s"}`, "b", `{"model":"m","prompt":"c","suffix":"s"}`,
			`{"model":"m","prompt":"b","suffix":"t"}`},
		{openai.Completions, `{"model":"m","prompt":[1,2]}`, "", `{"model":"m","prompt":[1,2]}`, `{"model":"m","prompt":[1,3]}`},
		{openai.Responses, `{"model":"m","input":"b","instructions":"i"}`, "b", `{"model":"m","input":"c","instructions":"i"}`,
			`{"model":"m","input":"b","instructions":"j"}`},
		{openai.Responses, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"b"}]}]}`, "b",
			`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"c"}]}]}`,
			`{"model":"m","input":[{"role":"developer","content":[{"type":"input_text","text":"b"}]}]}`},
		{openai.Responses, `{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"b"}]}`, "",
			`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"b"}]}`,
			`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"c"}]}`},
	} {
		f, same, other := readForm(t, c.d, c.body), readForm(t, c.d, c.sameRest), readForm(t, c.d, c.differentOne)
		if string(f.Text) != c.text || f.Rest != same.Rest || f.Rest == other.Rest || f.Exact == other.Exact {
			t.Errorf("%s: the text is %q; the rest equal %t, and of the other %t", c.body, f.Text, f.Rest == same.Rest,
				f.Rest == other.Rest)
		}
		if c.text != "" && f.Exact == same.Exact {
			t.Errorf("%s: the text does not count", c.body)
		}
	}
}
