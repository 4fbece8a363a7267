package chaos

import (
	"net/http"
	"slices"
	"sync"
)

// Recorder records the requests to a handler.
type Recorder struct {
	inner http.Handler

	mu       sync.Mutex // guards requests
	requests []Recorded
}

// Recorded is one request as it arrived.
type Recorded struct {
	Method string
	URL    string // path and query
	Host   string
	Header http.Header
	Body   []byte
}

// maxRecorded bounds the recorder: tests need no more, and bodies are kept whole.
const maxRecorded = 4096

// Record returns a Recorder of the requests to inner.
func Record(inner http.Handler) *Recorder { return &Recorder{inner: inner} }

// ServeHTTP reads the whole request, records it and forwards it.
func (rec *Recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, body, err := readBody(w, r)
	rec.mu.Lock()
	if len(rec.requests) == maxRecorded {
		rec.requests = slices.Delete(rec.requests, 0, 1)
	}
	rec.requests = append(rec.requests, Recorded{Method: r.Method, URL: r.URL.RequestURI(), Host: r.Host,
		Header: r.Header.Clone(), Body: body})
	rec.mu.Unlock()
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	rec.inner.ServeHTTP(w, r)
}

// Requests returns the last 4,096 requests, oldest first. The caller must not change
// headers and bodies.
func (rec *Recorder) Requests() []Recorded {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return slices.Clone(rec.requests)
}
