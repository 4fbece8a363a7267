package engines

import (
	"encoding/json"
	"net/http"
)

// sse writes server-sent events, each flushed by itself as engines do.
type sse struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf []byte
}

// newSSE sends the header at once, as engines do before they know whether they can
// answer.
func newSSE(w http.ResponseWriter) (*sse, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	s := &sse{w: w, rc: http.NewResponseController(w)}
	return s, s.rc.Flush()
}

// open starts an event; name may be empty. The caller appends the data to the
// returned buffer and gives it to send.
func (s *sse) open(name string) []byte {
	b := s.buf[:0]
	if name != "" {
		b = append(b, "event: "...)
		b = append(b, name...)
		b = append(b, '\n')
	}
	return append(b, "data: "...)
}

func (s *sse) send(b []byte) error {
	b = append(b, "\n\n"...)
	s.buf = b
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.rc.Flush()
}

// event sends an event with a name and a JSON object.
func (s *sse) event(name string, fields map[string]any) error {
	b, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return s.send(append(s.open(name), b...))
}

// done sends the last event of chat and completion streams.
func (s *sse) done() error { return s.send(append(s.open(""), "[DONE]"...)) }
