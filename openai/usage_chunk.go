package openai

import (
	"bytes"
	"slices"
)

// JoinUsageChunk moves the other members of a usage chunk, which is then dropped, into the
// previous chunk. out[from:] is the previous chunk's event, and usage is the data of the usage
// chunk. Engines write some members only into their last chunk, such as vLLM's
// system_fingerprint and llama.cpp's timings; without include_usage, that is the chunk with the
// finish_reason. out is returned unchanged if the event has several lines or no choices, or if
// there is nothing to move.
func JoinUsageChunk(out []byte, from int, usage []byte) []byte {
	event := bytes.TrimRight(out[from:], "\r\n")
	data, ok := bytes.CutPrefix(event, []byte("data:"))
	if !ok || !bytes.HasSuffix(data, []byte("}")) || bytes.ContainsAny(data, "\r\n") ||
		!hasField(data, []byte("choices")) {
		return out
	}
	var moved []byte
	c := NewReader(usage)
	for c.Enter('{'); c.More('}'); {
		at := c.i
		name := c.Name()
		if c.nonEmpty() && string(name) != "choices" && string(name) != "usage" && !hasField(data, name) {
			moved = append(append(moved, ','), usage[at:c.i]...)
		}
	}
	if !c.AtEnd() || len(moved) == 0 {
		return out
	}
	return slices.Insert(out, from+len(event)-1, moved...)
}

// hasField reports whether an object has a member of that name.
func hasField(object, name []byte) bool {
	c := NewReader(object)
	for c.Enter('{'); c.More('}'); {
		if bytes.Equal(c.Name(), name) {
			return true
		}
	}
	return false
}
