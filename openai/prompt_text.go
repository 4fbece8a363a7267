package openai

// AppendUserText appends to dst what the user said last: the text of the last
// message of a user that has any, with its escapes resolved and its parts on
// lines of their own. Results of tools, images, audio and files are no text of
// a user, so an agent's loop has the text that it began with. Where there are no
// messages, the prompt, the input or the query is what the user said: of several
// the last, and nothing when they are token ids. A text of more than 2·most bytes
// is cut to the first most and the last most bytes with a line break between
// them, less what would be a part of a character. Without text, of a form and of
// the dialect Other dst is returned as it is.
func (r *Request) AppendUserText(dst []byte, most int) []byte {
	t := newExcerpt(r.Body, dst, most)
	at := &r.place
	switch r.Dialect {
	case Chat, Messages:
		t.user(at.of(fieldMessages))
	case Responses:
		t.input(at.of(fieldInput))
	case Completions, Images:
		t.prompt(at.of(fieldPrompt))
	case Tokenize:
		if t.user(at.of(fieldMessages)); t.empty() {
			t.prompt(at.of(fieldPrompt))
		}
	case Embeddings:
		if t.user(at.of(fieldMessages)); t.empty() {
			t.prompt(at.of(fieldInput))
		}
	case Rerank, Score:
		for _, f := range [...]field{fieldQuery, fieldQueries, fieldText1} {
			if t.empty() {
				t.prompt(at.of(f))
			}
		}
	case Moderations, Audio:
		t.prompt(at.of(fieldInput))
	}
	return t.text()
}

// AppendSystemText appends to dst what the application tells the model before
// and between what users say: Anthropic's system, the instructions of Responses,
// and all messages of the roles system and developer, in this order, each part
// on a line of its own, cut as AppendUserText cuts.
func (r *Request) AppendSystemText(dst []byte, most int) []byte {
	t := newExcerpt(r.Body, dst, most)
	at := &r.place
	switch r.Dialect {
	case Chat, Tokenize, Embeddings:
		t.system(at.of(fieldMessages))
	case Messages:
		t.content(at.of(fieldSystem))
		t.system(at.of(fieldMessages))
	case Responses:
		t.content(at.of(fieldInstructions))
		t.system(at.of(fieldInput))
	}
	return t.text()
}

// speaker is whom a message is from, as far as it matters.
type speaker uint8

const (
	speakerOther speaker = iota // an assistant, a tool, or an item that is no message
	speakerUser
	speakerSystem
)

// turn reads a message or an item: who speaks, and where the content begins, 0
// without one.
func (c *cursor) turn() (who speaker, content int) {
	message := true
	for c.enter(); c.more('}'); {
		key := c.key()
		switch string(c.word(key)) {
		case "role":
			who = c.speaker()
		case "type":
			if message = true; c.b[c.i] == '"' {
				message = string(c.word(c.str())) == "message"
				continue
			}
			c.skip()
		case "content":
			content = c.i
			c.skip()
		default:
			c.skip()
		}
	}
	if !message {
		return speakerOther, 0
	}
	return who, content
}

// speaker reads a role.
func (c *cursor) speaker() speaker {
	if c.b[c.i] != '"' {
		c.skip()
		return speakerOther
	}
	switch string(c.word(c.str())) {
	case "user":
		return speakerUser
	case "system", "developer":
		return speakerSystem
	}
	return speakerOther
}

// part reads an element of a content: its text, if it is one.
func (c *cursor) part() (text quoted) {
	switch c.b[c.i] {
	case '"':
		return c.str()
	case '{':
	default:
		c.skip()
		return text
	}
	prose := true
	for c.enter(); c.more('}'); {
		key := c.key()
		var value quoted
		if c.b[c.i] == '"' {
			value = c.str()
		} else {
			c.skip()
		}
		switch string(c.word(key)) {
		case "text":
			text = value
		case "type":
			prose = value.raw == nil || c.prose(value)
		}
	}
	if !prose {
		return quoted{}
	}
	return text
}

// prose says whether the text of a part of this type is what somebody wrote.
func (c *cursor) prose(kind quoted) bool {
	switch string(c.word(kind)) {
	case "text", "input_text":
		return true
	}
	return false
}

// user takes the last message of a user that has text.
func (t *excerpt) user(from int) {
	if from == 0 {
		return
	}
	last := 0
	t.i = from
	for t.enter(); t.more(']'); {
		if t.b[t.i] != '{' {
			t.skip()
			continue
		}
		who, content := t.turn()
		if who == speakerUser && t.says(content) {
			last = content
		}
	}
	t.content(last)
}

// says tells whether the content at from has text.
func (t *excerpt) says(from int) bool {
	if from == 0 {
		return false
	}
	c := cursor{b: t.b, i: from}
	switch c.b[c.i] {
	case '"':
		return len(c.str().raw) > 0
	case '[':
		for c.enter(); c.more(']'); {
			if len(c.part().raw) > 0 {
				return true
			}
		}
	}
	return false
}

// system takes all messages of the system.
func (t *excerpt) system(from int) {
	if from == 0 || t.b[from] != '[' {
		return
	}
	t.i = from
	for t.enter(); t.more(']'); {
		if t.b[t.i] != '{' {
			t.skip()
			continue
		}
		who, content := t.turn()
		if behind := t.i; who == speakerSystem {
			t.content(content)
			t.i = behind
		}
	}
}

// content takes a content: a string, or all texts of an array of parts.
func (t *excerpt) content(from int) {
	if from == 0 {
		return
	}
	t.i = from
	switch t.b[t.i] {
	case '"':
		t.add(t.str())
	case '[':
		for t.enter(); t.more(']'); {
			t.add(t.part())
		}
	}
}

// input takes the input of Responses: a string, or items.
func (t *excerpt) input(from int) {
	if from > 0 && t.b[from] == '"' {
		t.content(from)
		return
	}
	t.user(from)
}

// prompt takes a prompt without messages: a string, the last of several, or
// parts.
func (t *excerpt) prompt(from int) {
	if from == 0 {
		return
	}
	if t.i = from; t.b[from] != '[' || t.peek() != '"' {
		t.content(from)
		return
	}
	var last quoted
	for t.enter(); t.more(']'); {
		if q := t.part(); len(q.raw) > 0 {
			last = q
		}
	}
	t.add(last)
}
