package openai

import (
	"bytes"
	"unicode/utf8"
)

// The estimate assumes that a token has six bytes of ASCII or eight other bytes, counted in parts.
// With o200k_base and cl100k_base, English, German, code and JSON have 3.4 to 5.0 bytes per token,
// Chinese and Japanese 2.3 to 4.5, Russian and Hindi 2.5 to 7.4. A stream with one token per event is
// thus counted by its events, and one with several tokens per event is not overestimated.
const (
	tokenParts = 24
	asciiParts = tokenParts / 6
	wideParts  = tokenParts / 8
)

// EstimatedOutput estimates the generated tokens so far, for a stream that ends without the
// engine's own count. It is the number of content deltas, because engines send each token when
// it is generated, or the minimum tokens of their text if that is larger, because some engines
// send several tokens per event. Reasoning, tool arguments and the start of a call count;
// repeated text and signatures do not. The estimate tends to be low. In dialects without known
// deltas, every event with data counts.
func (t *Tracker) EstimatedOutput() int64 {
	if t.dialect.Generates() {
		return max(t.deltas, t.text/tokenParts)
	}
	return int64(t.output)
}

func (t *Tracker) countResponseDelta(p *eventPayload) {
	if !bytes.HasSuffix(p.kind, []byte(".delta")) || !HasContent(p.delta) {
		return
	}
	t.deltas++
	if !bytes.HasSuffix(p.kind, []byte("audio.delta")) { // audio data is not text
		t.text += int64(textParts(p.delta))
	}
}

func (t *Tracker) countMessageDelta(p *eventPayload) {
	c := NewReader(p.delta)
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

// callParts counts the text of tool calls: names and arguments of an array of calls, or of one
// function_call.
func callParts(v []byte) (n int) {
	c := NewReader(v)
	if c.Next() != '[' {
		return writtenParts(v)
	}
	for c.Enter('['); c.More(']'); {
		call := NewReader(c.Skip())
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
	c := NewReader(v)
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

// textParts returns the token parts of a raw string value, with decoded escapes; 0 for every
// other value.
func textParts(v []byte) (n int) {
	if len(v) < 2 || v[0] != '"' {
		return 0
	}
	for in := v[1 : len(v)-1]; len(in) > 0; {
		char, size := rune(in[0]), 1
		if char == '\\' {
			if r, escaped := decodeEscape(in); escaped > 0 {
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
