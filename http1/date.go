package http1

import (
	"net/http"
	"time"
)

// dateText is a second as the Date of answers.
type dateText struct {
	second int64
	text   string
}

// date returns a time as the Date of an answer.
func (s *Server) date(t time.Time) string {
	if d := s.lastDate.Load(); d != nil && d.second == t.Unix() {
		return d.text
	}
	d := &dateText{t.Unix(), t.UTC().Format(http.TimeFormat)}
	s.lastDate.Store(d)
	return d.text
}
