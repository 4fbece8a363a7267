package openai

import (
	"bytes"
	"slices"
)

// JoinUsageChunk moves what a usage chunk says beside usage into the chunk before it:
// out[from:] is that chunk's event, usage the data of the usage chunk, which is then
// left out. Engines write some members into their last chunk only, such as vLLM's
// system_fingerprint and llama.cpp's timings; without include_usage that is the chunk
// with the finish_reason. out is returned as it is when the event has more than one line,
// when it has no choices, or when nothing is to be moved.
func JoinUsageChunk(out []byte, from int, usage []byte) []byte {
	event := bytes.TrimRight(out[from:], "\r\n")
	data, ok := bytes.CutPrefix(event, []byte("data:"))
	if !ok || !bytes.HasSuffix(data, []byte("}")) || bytes.ContainsAny(data, "\r\n") || !hasField(data, []byte("choices")) {
		return out
	}
	var moved []byte
	c := newReader(usage)
	for c.Enter('{'); c.More('}'); {
		at := c.i
		name := c.Name()
		if c.nonEmpty() && string(name) != "choices" && string(name) != "usage" && !hasField(data, name) {
			moved = append(append(moved, ','), usage[at:c.i]...)
		}
	}
	if !c.done() || len(moved) == 0 {
		return out
	}
	return slices.Insert(out, from+len(event)-1, moved...)
}

// hasField tells whether an object has a member of that name.
func hasField(object, name []byte) bool {
	c := newReader(object)
	for c.Enter('{'); c.More('}'); {
		if bytes.Equal(c.Name(), name) {
			return true
		}
	}
	return false
}
