package prompttokens

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/http1"
	"tierway/openai"
)

// chat is what a template renders.
type chat struct {
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		Calls   []struct {
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	} `json:"messages"`
	Prompt string            `json:"prompt"`
	Tools  []json.RawMessage `json:"tools"`
	Answer *bool             `json:"add_generation_prompt"`
}

// templateEngine answers /tokenize and the render endpoints with a template and a tokenizer.
type templateEngine struct {
	render func(c *chat, answer bool) (prompt string, ok bool)
	tokens func(prompt string) []uint32
	status int // of all answers, if it is not 0
}

func (e *templateEngine) Send(_ context.Context, r *http1.Request) (*http1.Response, error) {
	var c chat
	if err := json.Unmarshal(bytes.Join(r.Body, nil), &c); err != nil {
		return nil, err
	}
	text, ok := c.Prompt, true
	if len(c.Messages) > 0 && e.status == 0 {
		text, ok = e.render(&c, c.Answer == nil || *c.Answer)
	}
	answer := func(status int, body any) (*http1.Response, error) {
		b, err := json.Marshal(body)
		return &http1.Response{Status: status, Body: io.NopCloser(bytes.NewReader(b))}, err
	}
	switch {
	case e.status != 0:
		return answer(e.status, nil)
	case !ok:
		return answer(http.StatusBadRequest, object{"error": "the template fails"})
	case strings.HasSuffix(r.Path, "/render") && len(c.Messages) == 0:
		return answer(http.StatusOK, []object{{"token_ids": e.tokens(text)}})
	case strings.HasSuffix(r.Path, "/render"):
		return answer(http.StatusOK, object{"token_ids": e.tokens(text)})
	}
	return answer(http.StatusOK, object{"count": 1, "tokens": e.tokens(text), "token_strs": nil})
}

// words makes tokens of runs of the same kind of character, at most six characters long. Text in angle
// brackets is one token. Like real tokenizers, it joins adjacent text across messages.
func words(text string) (ids []uint32) {
	kind := func(c byte) int {
		switch {
		case c == '<':
			return 0
		case c == ' ' || c == '\n':
			return 1
		case '0' <= c && c <= '9':
			return 2
		}
		return 3
	}
	for text != "" {
		n := 1
		if text[0] == '<' {
			n = strings.IndexByte(text, '>') + 1
		} else {
			for n < len(text) && n < 6 && kind(text[n]) == kind(text[0]) {
				n++
			}
		}
		id := uint32(2166136261)
		for i := range n {
			id = (id ^ uint32(text[i])) * 16777619
		}
		ids = append(ids, id)
		text = text[n:]
	}
	return ids
}

// marked is a template with special tokens around messages, like ChatML.
func marked(c *chat, answer bool) (string, bool) {
	var b strings.Builder
	for _, t := range c.Tools {
		fmt.Fprintf(&b, "<tool>%s", t)
	}
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "<start>%s\n%s<end>\n", m.Role, m.Content)
	}
	if answer {
		b.WriteString("<start>assistant\n")
	}
	return b.String(), true
}

// open is a template without special tokens: text and template may be joined to one token.
func open(c *chat, answer bool) (string, bool) {
	var b strings.Builder
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "[%s] %s", m.Role, m.Content)
	}
	if answer {
		b.WriteString("[assistant] ")
	}
	return b.String(), true
}

// alone is marked, but takes no chat of a system message alone.
func alone(c *chat, answer bool) (string, bool) {
	prompt, _ := marked(c, answer)
	return prompt, len(c.Messages) > 1 || c.Messages[0].Role != "system"
}

// forgetful is marked, but leaves the thoughts of answers out when a question follows.
func forgetful(c *chat, answer bool) (string, bool) {
	for i := range c.Messages {
		if m := &c.Messages[i]; i < len(c.Messages)-2 {
			m.Content = strings.ReplaceAll(m.Content, "thought", "")
		}
	}
	return marked(c, answer)
}

// numbered is marked, but states the number of messages first.
func numbered(c *chat, answer bool) (string, bool) {
	prompt, ok := marked(c, answer)
	return fmt.Sprintf("<%d>", len(c.Messages)) + prompt, ok
}

// drawChats draws chats that share beginnings, in the order of a session's requests.
func drawChats(t *rapid.T) (bodies []object) {
	content := func(label string) string {
		unit := rapid.StringOfN(rapid.SampledFrom([]rune("ab1 \n.é")), 1, 12, -1).Draw(t, label)
		end := rapid.SampledFrom([]string{"", "x", "1 b", " ", "\nx"}).Draw(t, label+" end")
		return strings.Repeat(unit, rapid.SampledFrom([]int{1, 3, 40, 400}).Draw(t, label+" times")) + end
	}
	chats := [][]object{nil}
	for range rapid.IntRange(1, 12).Draw(t, "requests") {
		messages := chats[rapid.IntRange(0, len(chats)-1).Draw(t, "chat")]
		if len(messages) == 0 {
			messages = []object{say(rapid.SampledFrom([]string{"system", "user"}).Draw(t, "first"), content("first"))}
		}
		for range rapid.IntRange(0, 3).Draw(t, "new messages") {
			role := rapid.SampledFrom([]string{"user", "assistant", "tool"}).Draw(t, "role")
			messages = append(messages[:len(messages):len(messages)], say(role, content("message")))
		}
		chats = append(chats, messages)
		body := object{"model": "m", "messages": messages}
		if rapid.IntRange(0, 3).Draw(t, "tools") == 0 {
			body["tools"] = []object{{"type": "function", "function": object{"name": "f"}}}
		}
		bodies = append(bodies, body)
	}
	return bodies
}

// TestTokensOfPartsAreThoseOfTheWholePrompt compares all results with the tokens of the whole prompt, also
// the beginnings that are known before it is tokenized. The source's own comparison is off.
func TestTokensOfPartsAreThoseOfTheWholePrompt(t *testing.T) {
	for name, render := range map[string]func(*chat, bool) (string, bool){"marked": marked, "open": open, "alone": alone} {
		t.Run(name, func(t *testing.T) {
			parts := int64(0)
			rapid.Check(t, func(rt *rapid.T) {
				w := &templateEngine{render: render, tokens: words}
				s := source(w)
				s.inParts.Store(firstCompared)
				for _, body := range drawChats(rt) {
					if messages := body["messages"].([]object); len(messages) == 1 && messages[0]["role"] == "system" {
						continue // one of the templates rejects it
					}
					q := query(t, openai.Chat, body)
					tokens := tokenize(t, w, q)
					check(rt, q, remembered(s, q), tokens)
					p := lookup(t, s, q)
					if p.Tokens == 0 {
						rt.Fatal("not known")
					}
					check(rt, q, p, tokens)
				}
				if c := s.Counts(); c.Mismatched > 0 {
					rt.Fatalf("%+v", c)
				}
				parts += s.counts.parts.Load()
			})
			if (parts > 0) != (name != "open") {
				t.Errorf("%d prompts were rendered in parts", parts)
			}
		})
	}
}

// TestPromptsShareTheBeginningsOfTexts compares the beginnings that are known of a text before it is
// tokenized with its tokens.
func TestPromptsShareTheBeginningsOfTexts(t *testing.T) {
	known := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := &templateEngine{tokens: words}
		s := source(w)
		texts := []string{""}
		for range rapid.IntRange(2, 8).Draw(rt, "texts") {
			of := rapid.SampledFrom(texts).Draw(rt, "beginning")
			unit := rapid.StringOfN(rapid.SampledFrom([]rune("ab1 \n.é")), 1, 40, -1).Draw(rt, "unit")
			cut := len(of)*rapid.SampledFrom([]int{2, 3, 4}).Draw(rt, "quarters")/4 - rapid.IntRange(0, 700).Draw(rt, "less")
			times := rapid.SampledFrom([]int{1, 30, 200}).Draw(rt, "times")
			text := strings.ToValidUTF8(of[:max(cut, 0)], "") + strings.Repeat(unit, times)
			texts = append(texts, text)
			q := query(t, openai.Completions, object{"model": "m", "prompt": text})
			tokens := tokenize(t, w, q)
			p := remembered(s, q)
			check(rt, q, p, tokens)
			known += len(p.Keys)
			check(rt, q, lookup(t, s, q), tokens)
		}
		if c := s.Counts(); c.Mismatched > 0 {
			rt.Fatalf("%+v", c)
		}
	})
	if known == 0 {
		t.Error("no beginning was known")
	}
}

func TestATemplateThatChangesEarlierMessagesIsRenderedAsAWhole(t *testing.T) {
	for name, render := range map[string]func(*chat, bool) (string, bool){"forgetful": forgetful, "numbered": numbered} {
		w := &templateEngine{render: render, tokens: words}
		s := source(w)
		messages := []object{say("system", "be brief"), say("user", long(1, 100))}
		wrong := 0
		for range 12 {
			q := query(t, openai.Chat, object{"model": "m", "messages": messages})
			tokens := tokenize(t, w, q)
			if p := lookup(t, s, q); p.Tokens != int64(len(tokens)) {
				wrong++
			}
			check(t, q, lookup(t, s, q), tokens)
			messages = append(messages, say("assistant", "thought "+long(2, 20)), say("user", "and then?"))
		}
		if c := s.Counts(); wrong > 1 || s.divides() || c.Mismatched == 0 {
			t.Errorf("%s: %d wrong results, %+v", name, wrong, c)
		}
	}
}

// dated is marked, but states the date first.
func dated(date *string) func(*chat, bool) (string, bool) {
	return func(c *chat, answer bool) (string, bool) {
		prompt, ok := marked(c, answer)
		return "<" + *date + ">" + prompt, ok
	}
}

func TestATemplateWithADateIsLearnedAgain(t *testing.T) {
	date := "Monday"
	w := &templateEngine{render: dated(&date), tokens: words}
	s := source(w)
	messages := []object{say("system", "be brief"), say("user", long(1, 100))}
	for day := range 3 {
		for turn := range 2 * firstCompared {
			q := query(t, openai.Chat, object{"model": "m", "messages": messages})
			check(t, q, lookup(t, s, q), tokenize(t, w, q))
			messages = append(messages, say("assistant", "no"), say("user", fmt.Sprintf("turn %d?", turn)))
		}
		date = fmt.Sprintf("day %d", day)
	}
	if c := s.Counts(); c.Mismatched > 0 || c.Parts < 6*firstCompared-10 {
		t.Errorf("%+v", c)
	}
}

// TestPromptsAreDividedAgainLater: the first prompts are compared again.
func TestPromptsAreDividedAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &templateEngine{render: forgetful, tokens: words}
		s := source(w)
		messages := []object{say("system", "be brief"), say("user", long(1, 100))}
		turn := func(answer string) {
			lookup(t, s, query(t, openai.Chat, object{"model": "m", "messages": messages}))
			messages = append(messages, say("assistant", answer), say("user", "and then?"))
		}
		for range 5 {
			turn("thought")
		}
		before := s.Counts()
		if before.Mismatched == 0 || s.divides() {
			t.Fatalf("%+v", before)
		}
		time.Sleep(wholeFor)
		w.render = marked
		for range 5 {
			turn("no")
		}
		if c := s.Counts(); c.Parts < before.Parts+3 || c.Mismatched != before.Mismatched {
			t.Errorf("%+v, before %+v", c, before)
		}
	})
}
