package http1

import (
	"net/http"
	"sync/atomic"
	"time"
)

// dateText is a second as the Date of answers.
type dateText struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[dateText]

// date returns a time as the Date of an answer.
func date(t time.Time) string {
	if d := lastDate.Load(); d != nil && d.second == t.Unix() {
		return d.text
	}
	d := &dateText{t.Unix(), t.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}
