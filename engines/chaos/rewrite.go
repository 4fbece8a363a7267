package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// rewriteObject takes usage out of an object or puts a null error into it; nil when
// nothing but the usage was in it.
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

// mergedEvent puts the texts of several events into one.
type mergedEvent struct {
	object map[string]any // nil: nothing is held
	prefix []byte         // what stands before the object
	count  int
}

// add takes an event and returns those that are ready.
func (m *mergedEvent) add(ev []byte, every int) [][]byte {
	prefix, data, ok := bytes.Cut(ev, []byte("data: {"))
	var o map[string]any
	if ok {
		_ = json.Unmarshal(append([]byte("{"), data...), &o) // what is no object has no text
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

// take returns the held event, nil if there is none.
func (m *mergedEvent) take() []byte {
	if m.object == nil {
		return nil
	}
	b, _ := json.Marshal(m.object) // it came from JSON
	m.object = nil
	return append(append(m.prefix[:len(m.prefix):len(m.prefix)], "data: "...), b...)
}

// textSlot is where an object keeps its piece of text.
type textSlot struct {
	in  map[string]any
	key string
}

func (s *textSlot) get() string {
	text, _ := s.in[s.key].(string)
	return text
}

func (s *textSlot) set(text string) { s.in[s.key] = text }

// textOf finds an event's piece of text in any dialect; nil if it has none, or is
// one of several choices, which are not merged.
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

// finishWhole sends an answer that is no stream.
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
		_ = f.gz.Close() // the client may have gone
	}
}

// half sends the first half of a body and then does what the kind says.
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

// wrongLength writes an answer by hand whose Content-Length is off, and closes.
func (f *faultWriter) wrongLength(body []byte, by int) {
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "HTTP/1.1 %d %s\r\n", f.status, http.StatusText(f.status))
	f.Header().Set("Content-Length", strconv.Itoa(max(len(body)+by, 0)))
	_ = f.Header().Write(&raw) // a buffer takes everything
	raw.WriteString("\r\n")
	raw.Write(body)
	write(f.w, raw.Bytes())
}
