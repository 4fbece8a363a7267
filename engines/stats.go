package engines

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Stats is what an engine has done up to one moment.
type Stats struct {
	Requests      map[string]int64 // by path; ids are written {id}, unknown paths "other"
	Open          int              // requests being served now, of every path
	Running       int              // requests that hold a slot now
	Waiting       int              // requests that wait for a slot now
	MaxConcurrent int              // the most slots ever held at once
	Cancelled     int64            // requests whose client left before the end
	CancelledAt   time.Time        // when the engine last noticed one
	Written       Tokens           // tokens that requests were told that have ended
}

// Tokens counts what a client was told: prompt tokens, those of them that came from
// the prefix cache, and output tokens. Of a stream that was cut the output tokens
// are those written until then.
type Tokens struct{ Prompt, Cached, Output int64 }

// Recorded is one request as it arrived.
type Recorded struct {
	Method string
	URL    string // path and query
	Host   string
	Header http.Header
	Body   []byte
}

// maxRecorded bounds the recorder: no test looks at more, and bodies are kept whole.
const maxRecorded = 4096

// counters is what an engine counts.
type counters struct {
	mu sync.Mutex // guards the rest
	Stats
	recorded            []Recorded
	queried, hit        int // prefix cache, tokens
	computed, generated int // prompt and output tokens, whether delivered or not
	stops, lengths      int // finished by reason
}

// change changes the counters under their lock.
func (c *counters) change(to func(c *counters)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to(c)
}

func (c *counters) record(r *http.Request, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recorded) == maxRecorded {
		c.recorded = slices.Delete(c.recorded, 0, 1)
	}
	c.recorded = append(c.recorded, Recorded{Method: r.Method, URL: r.URL.RequestURI(), Host: r.Host,
		Header: r.Header.Clone(), Body: bytes.Clone(body)})
}

// Stats returns the counts of this moment.
func (e *Engine) Stats() Stats {
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	s := e.counts.Stats
	s.Requests = maps.Clone(s.Requests)
	s.Running, s.Waiting, s.MaxConcurrent = e.slots.state()
	return s
}

// Requests returns the requests of an engine whose Config.Record is set, oldest
// first: the last 4,096. The caller must not change headers and bodies.
func (e *Engine) Requests() []Recorded {
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	return slices.Clone(e.counts.recorded)
}
