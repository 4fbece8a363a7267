package prompttokens

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tierway/openai"
)

type object = map[string]any

func say(role, content string) object { return object{"role": role, "content": content} }

// long is a text of n words that no other number has.
func long(number, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "word%d of text%d, ", i, number)
	}
	return b.String()
}

func TestLookupHasTheKeysOfTheEnginesTokens(t *testing.T) {
	w := client(t, engine(t, 1<<20))
	s := source(w)
	tool := []object{{"type": "function", "function": object{"name": "f", "parameters": object{"type": "object"}}}}
	for name, q := range map[string]*Query{
		"chat":       query(t, openai.Chat, object{"model": "m", "messages": []object{say("user", long(1, 50))}}),
		"short":      query(t, openai.Chat, object{"model": "m", "messages": []object{say("user", "a")}}),
		"salted":     query(t, openai.Chat, object{"model": "m", "cache_salt": "s", "messages": []object{say("user", long(1, 50))}}),
		"tools":      query(t, openai.Chat, object{"model": "m", "tools": tool, "messages": []object{say("user", long(2, 50))}}),
		"documents":  query(t, openai.Chat, object{"model": "m", "documents": []object{}, "messages": []object{say("user", long(3, 50))}}),
		"parts":      query(t, openai.Chat, object{"model": "m", "messages": []object{{"role": "user", "content": []object{{"type": "text", "text": long(4, 40)}}}}}),
		"text":       query(t, openai.Completions, object{"model": "m", "prompt": long(5, 40)}),
		"one text":   query(t, openai.Completions, object{"model": "m", "prompt": []string{long(6, 40)}}),
		"escapes":    query(t, openai.Completions, object{"model": "m", "prompt": strings.Repeat("é\n\"€\" <&> ", 40)}),
		"ids":        query(t, openai.Completions, object{"model": "m", "prompt": slices.Repeat([]int{1, 70000, 3}, 30)}),
		"list of id": query(t, openai.Completions, object{"model": "m", "prompt": [][]int{slices.Repeat([]int{7, 1<<32 - 1}, 30)}}),
	} {
		q.Adapter = map[string]string{"tools": "adapter"}[name]
		tokens := tokenize(t, w.Poster, q)
		for _, when := range []string{"first", "again"} {
			got := lookup(t, s, q)
			if got.Tokens == 0 {
				t.Fatalf("%s, %s: not known", name, when)
			}
			check(t, q, got, tokens)
		}
	}
}

func TestAGrowingChatSendsItsNewMessagesOnly(t *testing.T) {
	w := client(t, engine(t, 1<<20))
	s := source(w)
	messages := []object{say("system", long(1, 1000)), say("user", "first question")}
	for turn := range 40 {
		q := query(t, openai.Chat, object{"model": "m", "messages": messages})
		tokens := tokenize(t, w.Poster, q)
		w.taken()
		got := lookup(t, s, q)
		if got.Tokens == 0 {
			t.Fatalf("turn %d is not known", turn)
		}
		check(t, q, got, tokens)
		paths, bytes := w.taken()
		compared := turn <= firstCompared
		if turn > 0 && !compared && (len(paths) != 1 || bytes > 2000) {
			t.Errorf("turn %d: %d requests with %d bytes", turn, len(paths), bytes)
		}
		messages = append(messages, say("assistant", long(turn, 5)), say("user", "and then?"))
	}
	// Another chat with the same system message.
	q := query(t, openai.Chat, object{"model": "m", "messages": []object{messages[0], say("user", "other")}})
	tokens := tokenize(t, w.Poster, q)
	w.taken()
	if p := remembered(s, q); p.Tokens != 0 || len(p.Keys) < len(keysOf(q, tokens))-1 {
		t.Errorf("%d tokens and %d keys of the shared system message, not 0 and about %d", p.Tokens, len(p.Keys),
			len(keysOf(q, tokens)))
	}
	check(t, q, lookup(t, s, q), tokens)
	if paths, bytes := w.taken(); len(paths) != 1 || bytes > 2000 {
		t.Errorf("a chat with a known system message sends %d requests with %d bytes", len(paths), bytes)
	}
	if c := s.Counts(); c.Mismatched > 0 || c.Failed > 0 {
		t.Errorf("%+v", c)
	}
}
