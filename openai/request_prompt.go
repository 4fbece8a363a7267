package openai

// Reading is how a value counts towards the prompt.
type Reading uint8

// The readings.
const (
	ReadNothing Reading = iota
	ReadTurns           // chat turns and their parts: text, but neither media nor the names of parts
	ReadIDs             // as ReadTurns, and a number is a token
	ReadAll             // every string and every name: schemas and arguments are shown to the model whole
	ReadMedia           // not text, but worth knowing of
	ReadSource          // Anthropic's source of a block: media or text, as its type says
)

// count adds the string that was read last to the prompt.
func (p *parser) count(raw []byte) {
	p.req.PromptBytes += int64(p.chars.bytes)
	p.req.ascii += int64(p.chars.ascii)
	p.req.wide += int64(p.chars.wide)
	if p.each != nil {
		p.each(raw)
	}
}

// walk reads one value and counts what the model reads of it.
func (p *parser) walk(how Reading) {
	c := p.Next()
	switch how {
	case ReadNothing:
		p.Skip()
		return
	case ReadMedia:
		// Clients that write every field they know write null for most.
		if c != 'n' {
			p.req.Media = true
		}
		p.Skip()
		return
	case ReadSource:
		if c == '{' {
			p.source()
			return
		}
		how = ReadTurns
	}
	switch c {
	case '"':
		p.count(p.Str())
	case '[':
		for p.Enter('['); p.More(']'); {
			p.walk(how)
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

func (p *parser) walkObject(how Reading) {
	var seen uint8 // of turnBit
	for p.Enter('{'); p.More('}'); {
		name := p.Key()
		if how == ReadAll {
			p.count(name)
			p.walk(ReadAll)
			continue
		}
		name = Word(name)
		if bit := turnBit(name); bit != 0 {
			if seen&bit != 0 {
				p.duplicate(string(name), " in a message or part")
			}
			seen |= bit
		}
		p.walk(how.Of(name))
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

// Of returns how the member name of a value that is read as how is read: of a message,
// an item or a part, by its name. A name that is not known counts as text: a wrong
// estimate is better than a prompt that weighs nothing.
func (how Reading) Of(name []byte) Reading {
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

// source reads the source of an image or document block. Its type may stand
// after its data, so both are kept until the end.
func (p *parser) source() {
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
			p.walk(ReadTurns)
		}
	}
	switch string(Word(kind)) {
	case "text":
		if data != nil {
			p.chars = size
			p.count(data)
		}
	case "content":
	default:
		p.req.Media = true
	}
}
