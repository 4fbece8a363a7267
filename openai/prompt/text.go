package prompt

import (
	"slices"

	"tierway/openai"
	"tierway/openai/tokens"
)

// AppendUserText appends the text that a person wrote to dst, decoded: of the last user message with
// such a text, the last part that has any. Tool results, images, audio and files are not user text, so an
// agent's loop keeps its original text. Reminders and other blocks that agents add in tags are not
// either, nor rules at the end of a text that an earlier message has too. The search for them reads at most
// searchLimit bytes. Without messages, the text is the prompt, input or query; of several, it is the last one.
// Token IDs are not text. A text of more than 2·limit bytes is cut to its first and last limit bytes at character
// boundaries, with a line break between them. Without text, for a form and for the dialect Other, dst is returned
// unchanged.
func AppendUserText(dst []byte, r *openai.Request, limit int) []byte {
	t := newExcerpt(r, dst, limit)
	if r.Dialect == openai.Responses {
		t.answered = r.PreviousResponseID != "" || r.ConversationID != ""
		t.addUser(r.At(openai.FieldInput), r.At(openai.FieldInstructions))
		return t.text()
	}
	t.addUser(r.At(openai.FieldMessages), r.At(openai.FieldSystem))
	for _, f := range [...]openai.Field{
		openai.FieldPrompt, openai.FieldInput, openai.FieldQuery, openai.FieldQueries, openai.FieldText1,
	} {
		if t.empty() {
			t.addPrompt(r.At(f))
		}
	}
	return t.text()
}

// AppendSystemText appends the application's instructions to dst: Anthropic's system, the
// instructions of Responses, and all messages of the roles system and developer, in this order.
// Each part is on its own line, and long texts are cut as by AppendUserText.
func AppendSystemText(dst []byte, r *openai.Request, limit int) []byte {
	t := newExcerpt(r, dst, limit)
	t.addContent(r.At(openai.FieldSystem))
	if r.Dialect == openai.Responses {
		t.addContent(r.At(openai.FieldInstructions))
		t.addSystem(r.At(openai.FieldInput))
	} else {
		t.addSystem(r.At(openai.FieldMessages))
	}
	return t.text()
}

// CountTurns returns the number of messages or items of a conversation, from all sides, at least 1.
func CountTurns(r *openai.Request) int {
	from := r.At(openai.FieldMessages)
	if r.Dialect == openai.Responses {
		from = r.At(openai.FieldInput)
	}
	c, n := r.Reader(), 0
	if c.Seek(from); from == 0 || c.Next() != '[' {
		return 1
	}
	for c.Enter('['); c.More(']'); n++ {
		c.Skip()
	}
	return max(n, 1)
}

// readTurn reads a message or item. It returns its role, nil if it is not a message, and the
// position of its content, 0 if it has none.
func readTurn(c *openai.Reader) (role []byte, content int) {
	if c.Next() != '{' {
		c.Skip()
		return nil, 0
	}
	message := true
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "role":
			role = c.Word()
		case "type":
			kind := c.Word()
			message = kind == nil || string(kind) == "message"
		case "content":
			content = c.Pos()
		}
	}
	if !message {
		return nil, 0
	}
	return role, content
}

// textOf reads an element of a content and returns its raw text. It is nil unless the element is a
// string, or a part of the type text or input_text.
func textOf(c *openai.Reader) (text []byte) {
	if c.Next() != '{' {
		return c.Text()
	}
	isText := true
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "text":
			text = c.Text()
		case "type":
			kind := c.Word()
			isText = kind == nil || string(kind) == "text" || string(kind) == "input_text"
		}
	}
	if !isText {
		return nil
	}
	return text
}

// addUser adds what a person wrote in the last user message with such a text. The input of Responses
// may be a string instead. system is the position of the system prompt.
func (t *excerpt) addUser(from, system int) {
	if t.Seek(from); from > 0 && t.Next() == '"' {
		t.addWritten(t.lastWritten([]userTurn{{from, 0, t.answered}}, nil))
		return
	}
	if !t.enterArray(from) {
		return
	}
	var texts [8][]byte
	rules := t.appendRules(texts[:0], system)
	var scratch [32]userTurn
	turns := scratch[:0]
	answered := t.answered
	for first := true; t.More(']'); first = false {
		role, content := readTurn(&t.Reader)
		answered = answered || string(role) == "assistant"
		if string(role) == "user" && t.hasText(content) {
			turns = append(turns, userTurn{content, len(rules), answered})
		}
		if first || string(role) == "system" || string(role) == "developer" {
			rules = t.appendRules(rules, content)
		}
	}
	t.addWritten(t.lastWritten(turns, rules))
}

type userTurn struct {
	content  int  // its position
	rules    int  // how many texts of rules come before it
	answered bool // an assistant's message comes before it
}

func (t *excerpt) addWritten(w written) {
	t.addText(w.raw)
	if len(w.text) > 0 {
		t.parts++
		t.addDecoded(w.text)
	}
}

// lastWritten returns the last text of the messages that a person wrote. Blocks that a person may have written count if
// their message has nothing else, or if no message has.
func (t *excerpt) lastWritten(turns []userTurn, rules [][]byte) (last written) {
	for _, turn := range slices.Backward(turns) {
		t.cutOwn = false
		if last = t.lastPart(turn, rules, plainTag); last.empty() && t.cutOwn {
			last = t.lastPart(turn, rules, ownTag)
		}
		if !last.empty() {
			return last
		}
	}
	if len(turns) > 0 {
		last = t.lastPart(turns[len(turns)-1], rules, sharedTag)
	}
	return last
}

// lastPart returns the last text of a message that a person wrote. Blocks up to the kind keep count.
func (t *excerpt) lastPart(turn userTurn, rules [][]byte, keep int) (last written) {
	t.answered, t.keep = turn.answered, keep
	results := false
	var texts [8][]byte
	for _, raw := range t.appendTexts(texts[:0], turn.content) {
		if results {
			results = false
			continue
		}
		w := t.writtenIn(raw, rules[:turn.rules])
		if results = w.results; !w.empty() {
			last = w
		}
	}
	return last
}

// appendRules appends the raw texts of the content at from, without the blanks at their ends.
func (t *excerpt) appendRules(rules [][]byte, from int) [][]byte {
	all := t.appendTexts(rules, from)
	for i, rule := range all[len(rules):] {
		all[len(rules)+i] = trimBlankEnd(rule)
	}
	return all
}

// appendTexts appends the raw texts of the content at from.
func (t *excerpt) appendTexts(texts [][]byte, from int) [][]byte {
	if from == 0 {
		return texts
	}
	c := t.Reader
	if c.Seek(from); c.Next() != '[' {
		return append(texts, c.Text())
	}
	for c.Enter('['); c.More(']'); {
		texts = append(texts, textOf(&c))
	}
	return texts
}

// enterArray enters the array at from, if there is one.
func (t *excerpt) enterArray(from int) bool {
	if t.Seek(from); from == 0 || t.Next() != '[' {
		return false
	}
	t.Enter('[')
	return true
}

// hasText reports whether the content at from has text.
func (t *excerpt) hasText(from int) bool {
	if from == 0 {
		return false
	}
	c := t.Reader
	c.Seek(from)
	if c.Next() != '[' {
		return c.Next() == '"' && !c.Empty()
	}
	for c.Enter('['); c.More(']'); {
		if len(textOf(&c)) > 0 {
			return true
		}
	}
	return false
}

func (t *excerpt) addSystem(from int) {
	if !t.enterArray(from) {
		return
	}
	for t.More(']') {
		role, content := readTurn(&t.Reader)
		if string(role) == "system" || string(role) == "developer" {
			next := t.Pos()
			t.addContent(content)
			t.Seek(next)
		}
	}
}

// addContent adds a content: a string, or all texts of an array of parts.
func (t *excerpt) addContent(from int) {
	if from == 0 {
		return
	}
	if t.Seek(from); t.Next() != '[' {
		t.addText(t.Text())
		return
	}
	for t.Enter('['); t.More(']'); {
		t.addText(textOf(&t.Reader))
	}
}

// addPrompt adds a prompt without messages: a string, the last of several, or parts.
func (t *excerpt) addPrompt(from int) {
	if t.Seek(from); from == 0 || t.Next() != '[' || t.Inside() != '"' {
		t.addContent(from)
		return
	}
	var last []byte
	for t.Enter('['); t.More(']'); {
		if text := textOf(&t.Reader); len(text) > 0 {
			last = text
		}
	}
	t.addText(last)
}

// CountTokens counts the tokens that the model reads: each text separately, and token IDs as
// they are. ok is false for a prompt with media, a prompt longer than tokens.MaxBytes, or a
// text that Vocabulary.Count rejects. CountTokens takes up to 1 µs per byte.
func CountTokens(r *openai.Request, v *tokens.Vocabulary) (n int64, ok bool) {
	if r.Media || r.PromptBytes > tokens.MaxBytes {
		return 0, false
	}
	ok = true
	ids := r.EachText(func(text []byte) {
		if !ok {
			return
		}
		var count int
		count, ok = v.Count(text)
		n += int64(count)
	})
	return n + ids, ok
}
