package prompt

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/openai"
)

type object = map[string]any

// drawText draws a text of zero to a few blocks.
func drawText(t *rapid.T, label string) string {
	unit := rapid.StringOfN(rapid.RuneFrom([]rune("ab \"\\/\n\té東😀\u2028<")), 0, 20, -1).Draw(t, label)
	return strings.Repeat(unit, rapid.SampledFrom([]int{1, 1, 1, 30, 90}).Draw(t, label+" times"))
}

// drawValue draws a value of a schema or an argument.
func drawValue(t *rapid.T, depth int) any {
	switch n := rapid.IntRange(0, 6).Draw(t, "value"); {
	case n == 0:
		return json.Number(rapid.SampledFrom([]string{"0", "-1", "1.50", "1e9", "12345678901234567890"}).Draw(t, "number"))
	case n == 1:
		return rapid.Bool().Draw(t, "bool")
	case n < 4 || depth == 0:
		return drawText(t, "string")
	case n == 4:
		array := make([]any, rapid.IntRange(0, 3).Draw(t, "elements"))
		for i := range array {
			array[i] = drawValue(t, depth-1)
		}
		return array
	}
	o := object{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		o[rapid.SampledFrom([]string{"type", "text", "é\"k", "cache_control", "role", "data"}).Draw(t, "name")] = drawValue(t,
			depth-1)
	}
	return o
}

func drawContent(t *rapid.T, text string) any {
	if rapid.Bool().Draw(t, "string") {
		return drawText(t, "content")
	}
	parts := make([]any, rapid.IntRange(0, 4).Draw(t, "parts"))
	for i := range parts {
		switch rapid.IntRange(0, 3).Draw(t, "part") {
		case 0:
			parts[i] = object{"type": "image_url", "image_url": object{"url": drawText(t, "url"), "detail": "low"}}
		case 1:
			parts[i] = object{"type": "tool_result", "tool_use_id": drawText(t, "id"),
				"content": []any{object{"type": text, "text": drawText(t, "result")}}}
		default:
			parts[i] = object{"type": text, "text": drawText(t, "part text")}
		}
	}
	return parts
}

// drawMessages draws one to six messages or items.
func drawMessages(t *rapid.T, d openai.Dialect) []any {
	text := "text"
	if d == openai.Responses {
		text = "input_text"
	}
	messages := make([]any, rapid.IntRange(1, 6).Draw(t, "messages"))
	for i := range messages {
		m := object{"role": rapid.SampledFrom([]string{"user", "assistant", "system", "tool"}).Draw(t, "role")}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			m["tool_calls"] = []any{object{"id": drawText(t, "id"),
				"function": object{"name": "f", "arguments": drawText(t, "arguments")}}}
		case 1:
			m = object{"type": "function_call_output", "call_id": "c", "output": drawText(t, "output")}
		case 2:
			m["name"] = drawText(t, "name")
			fallthrough
		default:
			m["content"] = drawContent(t, text)
		}
		messages[i] = m
	}
	return messages
}

// drawChat draws a request of a dialect with turns.
func drawChat(t *rapid.T) (openai.Dialect, object) {
	d := rapid.SampledFrom([]openai.Dialect{openai.Chat, openai.Messages, openai.Responses}).Draw(t, "dialect")
	body := object{"model": "m", messagesField(d): drawMessages(t, d)}
	tools := make([]any, rapid.IntRange(0, 3).Draw(t, "tools"))
	for i := range tools {
		tools[i] = object{"name": drawText(t, "tool"), "parameters": drawValue(t, 3)}
	}
	body["tools"] = tools
	if rapid.Bool().Draw(t, "salted") {
		body["cache_salt"] = rapid.StringN(-1, -1, 512).Draw(t, "salt")
	}
	if d != openai.Chat {
		body[map[openai.Dialect]string{openai.Messages: "system", openai.Responses: "instructions"}[d]] = drawText(t,
			"system")
	}
	return d, body
}

// messagesField returns the field of a dialect that contains the messages.
func messagesField(d openai.Dialect) string {
	if d == openai.Responses {
		return "input"
	}
	return "messages"
}

// speller writes JSON values in random equivalent spellings.
type speller struct {
	*rand.Rand
	b strings.Builder
}

func spell(seed uint64, body object) string {
	s := speller{Rand: rand.New(rand.NewPCG(seed, 1))}
	s.value(body, "")
	return s.b.String()
}

func (s *speller) blank() { s.b.WriteString([...]string{"", "", "", " ", "\n\t", "\r"}[s.IntN(6)]) }

// value writes v; parent is the name of the member with this value.
func (s *speller) value(v any, parent string) {
	s.blank()
	defer s.blank()
	switch v := v.(type) {
	case string:
		// A content may be a string or one part.
		if parent == "content" && s.IntN(3) == 0 {
			s.value([]any{object{"type": "text", "text": v}}, "")
			return
		}
		s.text(v)
	case []any:
		// An empty list of tools equals an absent one.
		if len(v) == 0 && parent == "tools" && s.IntN(2) == 0 {
			s.b.WriteString("null")
			return
		}
		s.b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				s.b.WriteByte(',')
			}
			s.value(e, parent)
		}
		s.b.WriteByte(']')
	case object:
		s.object(v, parent)
	default:
		fmt.Fprint(&s.b, v)
	}
}

func (s *speller) object(o object, parent string) {
	o = maps.Clone(o)
	if s.IntN(2) == 0 {
		o["null member"] = nil
	}
	if (parent == "content" || parent == "tools") && s.IntN(2) == 0 {
		o["cache_control"] = object{"type": "ephemeral"}
	}
	keys := slices.Sorted(maps.Keys(o))
	s.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	s.b.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			s.b.WriteByte(',')
		}
		s.blank()
		s.text(key)
		s.blank()
		s.b.WriteByte(':')
		if o[key] == nil {
			s.b.WriteString(" null")
		} else {
			s.value(o[key], key)
		}
	}
	s.blank()
	s.b.WriteByte('}')
}

func (s *speller) text(v string) {
	often := s.IntN(3) // never, sometimes or mostly
	s.b.WriteByte('"')
	for _, r := range v {
		short := strings.IndexRune("\"\\/\n\t", r)
		switch {
		case s.IntN(3) < often || short < 0 && r < ' ':
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&s.b, [...]string{`\u%04x`, `\u%04X`}[s.IntN(2)], unit)
			}
		case short >= 0 && (r != '/' || s.IntN(2) == 0):
			s.b.WriteString([...]string{`\"`, `\\`, `\/`, `\n`, `\t`}[short])
		default:
			s.b.WriteRune(r)
		}
	}
	s.b.WriteByte('"')
}

func TestSpellingMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, body := drawChat(t)
		a, b := spell(rapid.Uint64().Draw(t, "a"), body), spell(rapid.Uint64().Draw(t, "b"), body)
		one, two := mustParseDrawn(t, d, a), mustParseDrawn(t, d, b)
		chain, first := AppendChain(nil, one, 1)
		other, second := AppendChain(nil, two, 1)
		if diff := cmp.Diff(chain, other); diff != "" || first != second {
			t.Fatalf("%s: %s\n%s\n%d, %d: %s", d, a, b, first, second, diff)
		}
		const most = 100
		if x, y := AppendUserText(nil, one, most), AppendUserText(nil, two, most); string(x) != string(y) {
			t.Fatalf("%s: %s\n%s\nuser texts %q, %q", d, a, b, x, y)
		}
		if x, y := AppendSystemText(nil, one, most), AppendSystemText(nil, two, most); string(x) != string(y) {
			t.Fatalf("%s: %s\n%s\nsystem texts %q, %q", d, a, b, x, y)
		}
	})
}

// mustParseDrawn is mustParse for the tests of rapid.
func mustParseDrawn(t *rapid.T, d openai.Dialect, body string) *openai.Request {
	r, err := openai.Parse(d, []byte(body))
	if err != nil {
		t.Fatalf("%s %s: %v", d, body, err)
	}
	return r
}

func TestGrownChatsKeepTheirChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, body := drawChat(t)
		all := body[messagesField(d)].([]any)
		seed := rapid.Uint64().Draw(t, "seed")
		chain, first := AppendChain(nil, mustParseDrawn(t, d, spell(seed, body)), seed)
		for k := 1; k < len(all); k++ {
			body[messagesField(d)] = all[:k]
			earlier, before := AppendChain(nil, mustParseDrawn(t, d, spell(seed+1, body)), seed)
			if commonBlocks(earlier, chain) != len(earlier) || before > first {
				t.Fatalf("%d of %d messages: %v is not a prefix of %v (%d, %d)", k, len(all), earlier, chain, before, first)
			}
		}
	})
}

func TestOneCharacterChangesAllLaterBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, body := drawChat(t)
		all := append([]any{object{"role": "system", "content": "s"}}, body[messagesField(d)].([]any)...)
		k := rapid.IntRange(1, len(all)-1).Draw(t, "message")
		text := []byte(strings.Repeat("x", rapid.IntRange(1, 5*blockBytes).Draw(t, "length")))
		at := rapid.IntRange(0, len(text)-1).Draw(t, "character")
		all[k] = object{"role": "user", "content": string(text)}
		seed := rapid.Uint64().Draw(t, "seed")
		chainOf := func(messages []any) []Block {
			body[messagesField(d)] = messages
			chain, _ := AppendChain(nil, mustParseDrawn(t, d, spell(seed, body)), seed)
			return chain
		}
		chain := chainOf(all)
		before := len(chainOf(all[:k])) + at/blockBytes
		text[at] = 'y'
		all[k] = object{"role": "user", "content": string(text)}
		changed := chainOf(all)
		if len(changed) != len(chain) || commonBlocks(chain, changed) != before {
			t.Fatalf("character %d of message %d: %d of %d blocks are shared, want %d", at, k, commonBlocks(chain, changed),
				len(chain), before)
		}
		for i := before; i < len(chain); i++ {
			if chain[i].Hash == changed[i].Hash || chain[i].End != changed[i].End {
				t.Fatalf("block %d: %v, %v", i, chain[i], changed[i])
			}
		}
	})
}

// The size is that of PromptBytes and the messages.
func TestChainEndsAtTheSizeOfThePrompt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, body := drawChat(t)
		plain, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		messages := len(body[messagesField(d)].([]any))
		if d != openai.Chat {
			messages++ // the system text
		}
		r := mustParseDrawn(t, d, string(plain))
		chain, _ := AppendChain(nil, r, 0)
		if got, want := chain[len(chain)-1].End, r.PromptBytes+int64(messages*messageBytes); got != want {
			t.Fatalf("%s: the last block ends at %d, the prompt at %d: %v", plain, got, want, chain)
		}
		ends := 0
		for _, b := range chain {
			if b.Message {
				ends++
			}
		}
		if ends != messages {
			t.Fatalf("%s: %d blocks end a message, want %d", plain, ends, messages)
		}
	})
}
