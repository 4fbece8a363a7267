package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// rewriteObject removes usage from an object or adds a null error to it. It returns nil if the
// object contained only usage.
func (f *faultWriter) rewriteObject(object []byte, event bool) []byte {
	var o map[string]any
	if json.Unmarshal(object, &o) != nil {
		return object
	}
	if f.has(NoUsage) != nil {
		if choices, ok := o["choices"].([]any); event && ok && len(choices) == 0 {
			return nil
		}
		delete(o, "usage")
		for _, key := range []string{"response", "message"} {
			if inner, ok := o[key].(map[string]any); ok {
				delete(inner, "usage")
			}
		}
	}
	if f.has(NullError) != nil {
		o["error"] = nil
	}
	out, _ := json.Marshal(o) // it came from JSON
	return out
}

// mergedEvent merges the texts of several events into one.
type mergedEvent struct {
	object map[string]any // nil: no event is buffered
	prefix []byte         // bytes before the object
	count  int
}

// add adds an event and returns the events that are ready.
func (m *mergedEvent) add(ev []byte, every int) [][]byte {
	prefix, data, ok := bytes.Cut(ev, []byte("data: {"))
	var o map[string]any
	if ok {
		_ = json.Unmarshal(append([]byte("{"), data...), &o) // what is not an object has no text
	}
	text := textOf(o)
	if text == nil {
		out := m.ready()
		return append(out, ev)
	}
	if m.object == nil || !bytes.Equal(m.prefix, prefix) {
		out := m.ready()
		m.object, m.prefix, m.count = o, prefix, 1
		return out
	}
	held := textOf(m.object)
	held.set(held.get() + text.get())
	if m.count++; m.count < every {
		return nil
	}
	return m.ready()
}

func (m *mergedEvent) ready() [][]byte {
	if held := m.take(); held != nil {
		return [][]byte{held}
	}
	return nil
}

// take returns the buffered event, or nil.
func (m *mergedEvent) take() []byte {
	if m.object == nil {
		return nil
	}
	b, _ := json.Marshal(m.object) // it came from JSON
	m.object = nil
	return append(append(m.prefix[:len(m.prefix):len(m.prefix)], "data: "...), b...)
}

// textSlot is the place of an object's text.
type textSlot struct {
	in  map[string]any
	key string
}

func (s *textSlot) get() string {
	text, _ := s.in[s.key].(string)
	return text
}

func (s *textSlot) set(text string) { s.in[s.key] = text }

// textOf returns the place of an event's text in any dialect, or nil if there is none. Events with
// one of several choices have none: they are not merged.
func textOf(o map[string]any) *textSlot {
	if choices, ok := o["choices"].([]any); ok && len(choices) == 1 {
		choice, _ := choices[0].(map[string]any)
		if choice["finish_reason"] != nil || choice["index"] != 0.0 {
			return nil
		}
		if text, ok := choice["text"].(string); ok && text != "" {
			return &textSlot{choice, "text"}
		}
		delta, _ := choice["delta"].(map[string]any)
		if text, ok := delta["content"].(string); ok && text != "" {
			return &textSlot{delta, "content"}
		}
		return nil
	}
	if _, ok := o["delta"].(string); ok {
		return &textSlot{o, "delta"}
	}
	if delta, ok := o["delta"].(map[string]any); ok {
		if _, ok := delta["text"].(string); ok {
			return &textSlot{delta, "text"}
		}
	}
	return nil
}

// finishWhole sends an answer that is not a stream.
func (f *faultWriter) finishWhole() {
	body := f.buf
	if f.has(NullError) != nil || f.has(NoUsage) != nil {
		body = f.rewriteObject(body, false)
	}
	if length := f.has(Length); length != nil {
		f.wrongLength(body, length.Size)
		return
	}
	for i := range f.faults {
		switch f.faults[i].Kind {
		case Reset, Close, Hang, Truncate:
			f.half(body, f.faults[i].Kind)
			return
		case Malformed:
			body = body[:len(body)/2]
		}
	}
	f.w.WriteHeader(f.status)
	if f.raw(body) == nil && f.gz != nil {
		_ = f.gz.Close() // the client may have left
	}
}

// half sends the first half of a body and applies the kind.
func (f *faultWriter) half(body []byte, kind Kind) {
	f.w.WriteHeader(f.status)
	if f.raw(body[:len(body)/2]) != nil {
		return
	}
	switch kind {
	case Hang:
		<-f.r.Context().Done()
	case Reset, Close:
		drop(f.w, kind == Reset)
	}
}

// wrongLength writes an answer with a wrong Content-Length and closes the connection.
func (f *faultWriter) wrongLength(body []byte, by int) {
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "HTTP/1.1 %d %s\r\n", f.status, http.StatusText(f.status))
	f.Header().Set("Content-Length", strconv.Itoa(max(len(body)+by, 0)))
	_ = f.Header().Write(&raw) // a buffer takes everything
	raw.WriteString("\r\n")
	raw.Write(body)
	write(f.w, raw.Bytes())
}
