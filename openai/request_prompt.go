package openai

// Reading is the way in which a value counts towards the prompt.
type Reading uint8

// The readings.
const (
	ReadNothing Reading = iota
	ReadTurns           // chat turns and their parts: text, without media and member names
	ReadIDs             // like ReadTurns, and a number is a token ID
	ReadAll             // every string and member name: the model sees schemas and arguments completely
	ReadMedia           // media: no text, but Request.Media is set
	ReadSource          // Anthropic's source of a block: media or text, depending on its type
)

// countText adds the last string to the prompt.
func (p *parser) countText(raw []byte) {
	p.req.PromptBytes += int64(p.chars.bytes)
	p.req.ascii += int64(p.chars.ascii)
	p.req.wide += int64(p.chars.wide)
	if p.onText != nil {
		p.onText(raw)
	}
}

// walkPrompt reads one value and counts its prompt text.
func (p *parser) walkPrompt(how Reading) {
	c := p.Next()
	switch how {
	case ReadNothing:
		p.Skip()
		return
	case ReadMedia:
		// Clients that write all fields set most of them to null.
		if c != 'n' {
			p.req.Media = true
		}
		p.Skip()
		return
	case ReadSource:
		if c == '{' {
			p.readSource()
			return
		}
		how = ReadTurns
	}
	switch c {
	case '"':
		p.countText(p.Str())
	case '[':
		for p.Enter('['); p.More(']'); {
			p.walkPrompt(how)
		}
	case '{':
		p.walkObject(how)
	default:
		if how == ReadIDs && '0' <= c && c <= '9' {
			p.req.ids++
		}
		p.Scalar()
	}
}

// walkObject reads an object and counts its prompt text.
func (p *parser) walkObject(how Reading) {
	var seen uint8 // of turnBit
	for p.Enter('{'); p.More('}'); {
		name := p.Key()
		if how == ReadAll {
			p.countText(name)
			p.walkPrompt(ReadAll)
			continue
		}
		name = Word(name)
		if bit := turnBit(name); bit != 0 {
			if seen&bit != 0 {
				p.rejectDuplicate(string(name), " in a message or part")
			}
			seen |= bit
		}
		p.walkPrompt(how.ForMember(name))
	}
}

// turnBit returns one bit for each member of a message or part that affects decisions, else 0. If
// such a member occurs twice, the gateway and the worker may use different values.
func turnBit(name []byte) uint8 {
	switch string(name) {
	case "role":
		return 1
	case "content":
		return 2
	case "text":
		return 4
	}
	return 0
}

// ForMember returns the reading of a member of a message, item or part that itself has the reading
// how. Unknown members count as text: an overestimate is better than a prompt without tokens.
func (how Reading) ForMember(name []byte) Reading {
	if how != ReadTurns && how != ReadIDs {
		return how
	}
	switch string(name) {
	case "role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "item_id", "index",
		"status", "phase", "detail", "format", "media_type", "mime_type", "filename", "url", "uuid",
		"cache_control", "citations", "annotations", "logprobs", "signature", "encrypted_content", "data":
		return ReadNothing
	case "arguments", "input", "input_schema", "parameters":
		return ReadAll
	case "image_url", "input_audio", "audio", "audio_url", "video", "video_url", "image", "image_pil",
		"image_embeds", "audio_embeds", "file", "file_data", "file_id", "file_url", "result":
		return ReadMedia
	case "source":
		return ReadSource
	}
	return ReadTurns
}

// readSource reads the source of an image or document block. Its type may follow its data, so both
// are kept until the end.
func (p *parser) readSource() {
	var kind, data []byte
	var size extent
	for p.Enter('{'); p.More('}'); {
		switch string(p.Name()) {
		case "type":
			kind = p.Text()
		case "data":
			data = p.Text()
			size = p.chars
		case "content":
			p.walkPrompt(ReadTurns)
		}
	}
	switch string(Word(kind)) {
	case "text":
		if data != nil {
			p.chars = size
			p.countText(data)
		}
	case "content":
	default:
		p.req.Media = true
	}
}

// EachText calls do with every decoded text that the model reads, and returns the number of
// token IDs in the prompt. A text is valid until do returns. Templates, images and audio are
// not texts; a form has no texts. Each call reads the whole body.
func (r *Request) EachText(do func(text []byte)) (ids int64) {
	if r.place.form {
		return 0
	}
	scratch := Request{Dialect: r.Dialect, N: 1}
	p := parser{Reader: Reader{b: r.Body, limit: len(r.Body), strict: true}, req: &scratch}
	p.onText = func(raw []byte) { do(decoded(raw, len(raw))) }
	p.readBody() // the body is valid: Parse has read it
	return scratch.ids
}

// Reader returns a reader of the request body, for values at positions of At.
func (r *Request) Reader() Reader { return NewReader(r.Body) }

// At returns the position of a field's value in the body if the field is present, not null and
// shapes the prompt in the request's dialect; else 0. A form has no fields.
func (r *Request) At(f Field) int { return r.place.start(f) }

// Prompts returns the number of prompts in the request, each of which gets its own output. Only
// the Completions dialect accepts several, as a list of strings or of lists of token IDs.
func (r *Request) Prompts() int64 { return max(1, r.prompts) }

func (r *Request) countPrompts() int64 {
	at := r.place.start(FieldPrompt)
	if r.Dialect != Completions || at == 0 {
		return 1
	}
	c := NewReader(r.Body[at:])
	if c.Next() != '[' {
		return 1
	}
	n := int64(0)
	for c.Enter('['); c.More(']'); {
		if first := c.Next(); first != '"' && first != '[' {
			return 1 // the token IDs of one prompt
		}
		c.Skip()
		n++
	}
	return max(1, n)
}
