// Package chaos injects faults into the answers of an HTTP handler: resets, silence, invalid bytes,
// cut streams and the error formats of real engines. Only tests import it.
package chaos

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"tierway/engines"
)

// Handler serves requests with an inner handler and applies the faults of [Handler.Set]. Connection
// faults need HTTP/1; [Stale] needs a server of [engines.Start].
type Handler struct {
	inner http.Handler

	mu     sync.Mutex // guards the fields below
	faults []Fault
	stats  Stats
}

// Stats counts the requests of a [Handler].
type Stats struct {
	Requests  int64
	Open      int64
	Cancelled int64          // clients that left before the handler ended
	Hits      map[Kind]int64 // requests with a fault
	Faults    []Fault        // current faults
}

// New returns a Handler without faults.
func New(inner http.Handler) *Handler {
	return &Handler{inner: inner, stats: Stats{Hits: make(map[Kind]int64)}}
}

// Set replaces all faults; without arguments it removes them. Several faults apply together to each
// request. An unknown kind is an error and changes nothing.
func (c *Handler) Set(faults ...Fault) error {
	for i := range faults {
		if err := faults[i].check(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = slices.Clone(faults)
	return nil
}

// Stats returns the current counts.
func (c *Handler) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Hits = maps.Clone(s.Hits)
	s.Faults = slices.Clone(c.faults)
	return s
}

// take returns the faults for one request and counts them down.
func (c *Handler) take(r *http.Request, body []byte) []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	var taken []Fault
	for i := range c.faults {
		f := &c.faults[i]
		if f.Times < 0 || !f.applies(r, body) {
			continue
		}
		taken = append(taken, *f)
		c.stats.Hits[f.Kind]++
		if f.Times == 1 {
			f.Times = -1 // used up; removed below
		} else if f.Times > 1 {
			f.Times--
		}
	}
	c.faults = slices.DeleteFunc(c.faults, func(f Fault) bool { return f.Times < 0 })
	return taken
}

func (f *Fault) applies(r *http.Request, body []byte) bool {
	if len(f.Paths) > 0 && !slices.Contains(f.Paths, r.URL.Path) || len(f.Paths) == 0 && r.Method != http.MethodPost {
		return false
	}
	switch f.Kind {
	case Stale:
		return engines.Reused(r)
	case Reject:
		return bytes.Contains(body, []byte(`"`+f.field()+`"`))
	}
	return true
}

// ServeHTTP forwards a request with the current faults.
func (c *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.enter()
	defer func() { c.leave(r.Context().Err() != nil) }()

	r, body, err := readBody(w, r)
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	faults := c.take(r, body)
	late := faults[:0:0]
	for _, f := range faults {
		if !f.early() {
			late = append(late, f)
		} else if f.answer(w, r, body) {
			return
		}
	}
	if len(late) == 0 {
		c.inner.ServeHTTP(w, r)
		return
	}
	fw := newFaultWriter(w, r, late)
	c.inner.ServeHTTP(fw, r)
	fw.finish()
}

// readBody returns a request with its whole body buffered. net/http detects that a client has left
// only when the body has been read.
func readBody(w http.ResponseWriter, r *http.Request) (*http.Request, []byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, engines.MaxBody))
	r = r.WithContext(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, body, err
}

func (c *Handler) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Requests++
	c.stats.Open++
}

func (c *Handler) leave(gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Open--
	if gone {
		c.stats.Cancelled++
	}
}
