package openai

import (
	"bytes"
	"unicode/utf8"
)

// A token is taken for at least six bytes of ASCII or eight of anything else,
// counted in parts. Under o200k_base and cl100k_base English prose, German, code
// and JSON have 3.4 to 5.0 bytes a token, Chinese and Japanese 2.3 to 4.5,
// Russian and Hindi 2.5 to 7.4: so a stream with one token an event counts its
// events, and one that packs several into an event counts no more than it has.
const (
	tokenParts = 24
	asciiParts = tokenParts / 6
	wideParts  = tokenParts / 8
)

// EstimatedOutput returns how many tokens the engine has made up to now, counted
// from what came: as many as there were deltas of content, because engines send
// each token when it is made, or as their text has at the least, a sixth of its
// bytes or an eighth of those beyond ASCII, because some send several together.
// Reasoning and the arguments of tool
// calls count, and so does the opening of a call; an event that repeats what was
// said does not, nor does a signature. It is for a stream that ends without the
// engine's own count, and rather too low than too high. In a dialect without
// deltas that are known every event with data counts.
func (t *Tracker) EstimatedOutput() int64 {
	if t.dialect.Generates() {
		return max(t.deltas, t.text/tokenParts)
	}
	return int64(t.output)
}

// responseDelta counts an event of the Responses dialect that adds to a text.
func (t *Tracker) responseDelta(p *eventPayload) {
	if !bytes.HasSuffix(p.kind, []byte(".delta")) || !nonEmpty(p.delta) {
		return
	}
	t.deltas++
	if !bytes.HasSuffix(p.kind, []byte("audio.delta")) { // whose text is not the model's
		t.text += int64(textParts(p.delta))
	}
}

// messageDelta counts a content_block_delta of the Messages dialect.
func (t *Tracker) messageDelta(p *eventPayload) {
	c := newReader(p.delta)
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "text", "thinking", "partial_json":
			if n := textParts(c.Skip()); n > 0 {
				t.deltas++
				t.text += int64(n)
			}
		}
	}
}

// callParts counts what a model wrote for calls of tools: names and
// arguments of an array of calls, or of one function_call.
func callParts(v []byte) (n int) {
	c := newReader(v)
	if c.Next() != '[' {
		return writtenParts(v)
	}
	for c.Enter('['); c.More(']'); {
		call := newReader(c.Skip())
		for call.Enter('{'); call.More('}'); {
			if key := string(call.Name()); key == "function" || key == "custom" {
				n += writtenParts(call.Skip())
			}
		}
	}
	return n
}

// writtenParts counts the name and the arguments, or the free input, of a call.
func writtenParts(v []byte) (n int) {
	c := newReader(v)
	if c.Next() != '{' {
		return 0
	}
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "name", "arguments", "input":
			n += textParts(c.Skip())
		}
	}
	return n
}

// textParts returns how many parts of a token a string has, of a value as skip
// returns it, its escapes decoded, and 0 for every other value.
func textParts(v []byte) (n int) {
	if len(v) < 2 || v[0] != '"' {
		return 0
	}
	for in := v[1 : len(v)-1]; len(in) > 0; {
		char, size := rune(in[0]), 1
		if char == '\\' {
			if r, escaped := escape(in); escaped > 0 {
				char, size = r, escaped
			}
		}
		switch {
		case char < utf8.RuneSelf:
			n += asciiParts
		case size == 1:
			n += wideParts
		default:
			n += wideParts * utf8.RuneLen(char)
		}
		in = in[size:]
	}
	return n
}
