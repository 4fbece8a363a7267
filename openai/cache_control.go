package openai

// cacheControl is the member with which the Messages API marks the end of a prefix to cache.
const cacheControl = "cache_control"

// ephemeral is the only kind of mark.
const ephemeral = `{"type":"ephemeral"}`

// cacheMarkChanges returns the changes that mark the last block of the system prompt, or of the first
// user message if there is no system prompt. A string becomes a list with one text block. There are none
// if the body has a mark of its own anywhere, or no block that can have one.
func (r *Request) cacheMarkChanges(e Edit) []change {
	if !e.CacheControl || r.Dialect != Messages || r.hasMember(cacheControl) {
		return nil
	}
	if at := r.place.start(FieldSystem); at > 0 {
		if marks := r.markLastBlock(at); marks != nil {
			return marks
		}
	}
	return r.markLastBlock(r.firstUserContent())
}

// markLastBlock returns the changes that mark the last block of the content at a position; nil if it is
// empty or cannot have a mark. Position 0 is no content.
func (r *Request) markLastBlock(at int) []change {
	content := NewReader(r.Body)
	if content.Seek(at); at == 0 || content.Empty() {
		return nil
	}
	switch content.Next() {
	case '"':
		content.Str()
		end := content.Pos()
		return []change{
			{span: span{at, at}, replacement: []byte(`[{"type":"text","text":`)},
			{span: span{end, end}, replacement: []byte(`,"` + cacheControl + `":` + ephemeral + `}]`)},
		}
	case '[':
		last := 0
		for content.Enter('['); content.More(']'); {
			last = content.Pos()
		}
		if block := (Reader{b: r.Body, i: last, limit: readerDepth}); canMark(&block) {
			return []change{insertion(last+1, false, cacheControl, []byte(ephemeral))}
		}
	}
	return nil
}

// canMark reads a block and reports whether it can have a mark: the Messages API rejects marks of empty
// texts and of thinking.
func canMark(block *Reader) bool {
	if block.Next() != '{' || block.Empty() {
		return false
	}
	for block.Enter('{'); block.More('}'); {
		switch string(block.Name()) {
		case "text":
			if block.Empty() {
				return false
			}
		case "type":
			if kind := string(block.Word()); kind == "thinking" || kind == "redacted_thinking" {
				return false
			}
		}
	}
	return true
}

// firstUserContent returns the position of the content of the first user message; 0 if there is none.
func (r *Request) firstUserContent() int {
	messages := NewReader(r.Body)
	messages.Seek(r.place.start(FieldMessages))
	for messages.Enter('['); messages.More(']'); {
		if messages.Next() != '{' {
			continue
		}
		role, content := "", 0
		for messages.Enter('{'); messages.More('}'); {
			switch string(messages.Name()) {
			case "role":
				role = string(messages.Word())
			case "content":
				content = messages.Pos()
			}
		}
		if role == "user" {
			return content
		}
	}
	return 0
}

// hasMember reports whether an object of the body has a member of that name, at any depth.
func (r *Request) hasMember(name string) bool {
	body := NewReader(r.Body)
	return hasMember(&body, name)
}

func hasMember(v *Reader, name string) bool {
	switch v.Next() {
	case '{':
		for v.Enter('{'); v.More('}'); {
			if string(v.Name()) == name || hasMember(v, name) {
				return true
			}
		}
	case '[':
		for v.Enter('['); v.More(']'); {
			if hasMember(v, name) {
				return true
			}
		}
	default:
		v.Skip()
	}
	return false
}
