package openai

// reading is how a value counts towards the prompt.
type reading uint8

const (
	readNothing reading = iota
	readTurns           // chat turns and their parts: text, but neither media nor the names of parts
	readIDs             // as readTurns, and a number is a token
	readAll             // every string and every name: schemas and arguments are shown to the model whole
	readMedia           // not text, but worth knowing of
	readSource          // Anthropic's source of a block: media or text, as its type says
)

// count adds a string to the prompt.
func (p *parser) count(t text) {
	p.req.PromptBytes += int64(t.bytes)
	p.req.ascii += int64(t.ascii)
	p.req.wide += int64(t.wide)
	if p.each != nil {
		p.each(t)
	}
}

// walk reads one value and counts what the model reads of it.
func (p *parser) walk(how reading) bool {
	c := p.space()
	switch how {
	case readNothing:
		return p.skip()
	case readMedia:
		// Clients that write every field they know write null for most.
		if c != 'n' {
			p.req.Media = true
		}
		return p.skip()
	case readSource:
		if c == '{' {
			return p.source()
		}
		how = readTurns
	}
	switch c {
	case '"':
		t, ok := p.str()
		if ok {
			p.count(t)
		}
		return ok
	case '[':
		return p.walkArray(how)
	case '{':
		return p.walkObject(how)
	}
	if how == readIDs && '0' <= c && c <= '9' {
		p.req.ids++
	}
	return p.scalar()
}

func (p *parser) walkArray(how reading) bool {
	if !p.open() {
		return false
	}
	for first := true; ; first = false {
		again, ok := p.more(']', first)
		if !again {
			return ok
		}
		if !p.walk(how) {
			return false
		}
	}
}

func (p *parser) walkObject(how reading) bool {
	if !p.open() {
		return false
	}
	var seen uint8 // of turnBit
	for first := true; ; first = false {
		again, ok := p.more('}', first)
		if !again {
			return ok
		}
		name, ok := p.key()
		if !ok {
			return false
		}
		inner := readAll
		if how == readAll {
			p.count(name)
		} else {
			decoded := p.name(name)
			if bit := turnBit(decoded); bit != 0 {
				if seen&bit != 0 {
					return p.ambiguous(string(decoded), "a message or a part of one has it twice; give it once")
				}
				seen |= bit
			}
			inner = partReading(decoded)
		}
		if !p.walk(inner) {
			return false
		}
	}
}

// turnBit returns a bit for each member of a message or a part that the gateway
// decides by: of two, its readers and the worker's may take different ones.
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

// partReading tells how a member of a message, an item or a content part
// counts, by its name. A name that is not known counts as text: a wrong
// estimate is better than a prompt that weighs nothing.
func partReading(name []byte) reading {
	switch string(name) {
	case "role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "item_id", "index",
		"status", "phase", "detail", "format", "media_type", "mime_type", "filename", "url", "uuid",
		"cache_control", "citations", "annotations", "logprobs", "signature", "encrypted_content", "data":
		return readNothing
	case "arguments", "input", "input_schema", "parameters":
		return readAll
	case "image_url", "input_audio", "audio", "audio_url", "video", "video_url", "image", "image_pil",
		"image_embeds", "audio_embeds", "file", "file_data", "file_id", "file_url", "result":
		return readMedia
	case "source":
		return readSource
	}
	return readTurns
}

// source reads the source of an image or document block. Its type may stand
// after its data, so both are kept until the end.
func (p *parser) source() bool {
	if !p.open() {
		return false
	}
	var kind, data text
	for first := true; ; first = false {
		again, ok := p.more('}', first)
		if !ok {
			return false
		}
		if !again {
			break
		}
		name, ok := p.key()
		if !ok {
			return false
		}
		switch string(p.name(name)) {
		case "type":
			ok = p.stringOr(&kind)
		case "data":
			ok = p.stringOr(&data)
		case "content":
			ok = p.walk(readTurns)
		default:
			ok = p.skip()
		}
		if !ok {
			return false
		}
	}
	switch string(p.name(kind)) {
	case "text":
		p.count(data)
	case "content":
	default:
		p.req.Media = true
	}
	return true
}

// stringOr reads a string into dst, and skips every other value.
func (p *parser) stringOr(dst *text) bool {
	if p.space() != '"' {
		return p.skip()
	}
	t, ok := p.str()
	*dst = t
	return ok
}
