package engines

import (
	"encoding/json"
	"net/http"
)

// sse writes server-sent events and flushes each, as engines do.
type sse struct {
	w   http.ResponseWriter
	buf []byte
}

// open sends the header at once, as engines do before they know whether they can answer.
func (s *sse) open() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)
	return http.NewResponseController(s.w).Flush()
}

// event sends v as JSON in an event of the given name, which may be empty.
func (s *sse) event(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.send(name, b)
}

func (s *sse) send(name string, data []byte) error {
	s.buf = s.buf[:0]
	if name != "" {
		s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	}
	s.buf = append(append(append(s.buf, "data: "...), data...), "\n\n"...)
	if _, err := s.w.Write(s.buf); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}
