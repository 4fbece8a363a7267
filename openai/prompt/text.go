package prompt

import "tierway/openai"

// AppendUserText appends to dst what the user said last: the text of the last
// message of a user that has any, with its escapes resolved and its parts on
// lines of their own. Results of tools, images, audio and files are no text of
// a user, so an agent's loop has the text that it began with. Where there are no
// messages, the prompt, the input or the query is what the user said: of several
// the last, and nothing when they are token ids. A text of more than 2·most bytes
// is cut to the first most and the last most bytes with a line break between
// them, less what would be a part of a character. Without text, of a form and of
// the dialect Other dst is returned as it is.
func AppendUserText(dst []byte, r *openai.Request, most int) []byte {
	t := newExcerpt(r, dst, most)
	if r.Dialect == openai.Responses {
		t.user(r.At(openai.FieldInput))
		return t.text()
	}
	t.user(r.At(openai.FieldMessages))
	for _, f := range [...]openai.Field{
		openai.FieldPrompt, openai.FieldInput, openai.FieldQuery, openai.FieldQueries, openai.FieldText1,
	} {
		if t.empty() {
			t.prompt(r.At(f))
		}
	}
	return t.text()
}

// AppendSystemText appends to dst what the application tells the model before
// and between what users say: Anthropic's system, the instructions of Responses,
// and all messages of the roles system and developer, in this order, each part
// on a line of its own, cut as AppendUserText cuts.
func AppendSystemText(dst []byte, r *openai.Request, most int) []byte {
	t := newExcerpt(r, dst, most)
	t.content(r.At(openai.FieldSystem))
	if r.Dialect == openai.Responses {
		t.content(r.At(openai.FieldInstructions))
		t.system(r.At(openai.FieldInput))
	} else {
		t.system(r.At(openai.FieldMessages))
	}
	return t.text()
}

// readTurn reads a message or an item: its role, nil if it is no message, and where its
// content begins, 0 without one.
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

// textOf reads an element of a content and returns its text as written, nil when it has
// none that a person wrote.
func textOf(c *openai.Reader) (text []byte) {
	if c.Next() != '{' {
		return c.Text()
	}
	written := true
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "text":
			text = c.Text()
		case "type":
			kind := c.Word()
			written = kind == nil || string(kind) == "text" || string(kind) == "input_text"
		}
	}
	if !written {
		return nil
	}
	return text
}

// user takes the last message of a user that has text. The input of Responses may be a
// string instead.
func (t *excerpt) user(from int) {
	if t.Seek(from); from > 0 && t.Next() == '"' {
		t.content(from)
	}
	if !t.enter(from) {
		return
	}
	last := 0
	for t.More(']') {
		role, content := readTurn(&t.Reader)
		if string(role) == "user" && t.hasText(content) {
			last = content
		}
	}
	t.content(last)
}

// enter enters the array at from, if there is one.
func (t *excerpt) enter(from int) bool {
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

// system takes all messages of the system.
func (t *excerpt) system(from int) {
	if !t.enter(from) {
		return
	}
	for t.More(']') {
		role, content := readTurn(&t.Reader)
		if string(role) == "system" || string(role) == "developer" {
			behind := t.Pos()
			t.content(content)
			t.Seek(behind)
		}
	}
}

// content takes a content: a string, or all texts of an array of parts.
func (t *excerpt) content(from int) {
	if from == 0 {
		return
	}
	if t.Seek(from); t.Next() != '[' {
		t.add(t.Text())
		return
	}
	for t.Enter('['); t.More(']'); {
		t.add(textOf(&t.Reader))
	}
}

// prompt takes a prompt without messages: a string, the last of several, or
// parts.
func (t *excerpt) prompt(from int) {
	if t.Seek(from); from == 0 || t.Next() != '[' || t.Inside() != '"' {
		t.content(from)
		return
	}
	var last []byte
	for t.Enter('['); t.More(']'); {
		if text := textOf(&t.Reader); len(text) > 0 {
			last = text
		}
	}
	t.add(last)
}
