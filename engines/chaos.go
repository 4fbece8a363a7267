package engines

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
)

// Chaos stands before a handler and misbehaves on order. Faults are ordered by Set
// or by POST /ctl with a fault or a list of them as JSON; GET /ctl answers with
// Stats, DELETE /ctl ends all faults. What works on connections needs HTTP/1, and
// FaultStale needs a server that Start made.
type Chaos struct {
	inner http.Handler

	mu     sync.Mutex // guards all below
	faults []Fault
	stats  ChaosStats
}

// ChaosStats is what passed a Chaos.
type ChaosStats struct {
	Requests  int64          `json:"requests"`
	Open      int64          `json:"open"`
	Cancelled int64          `json:"cancelled"` // clients that left before the handler ended
	Hits      map[Kind]int64 `json:"hits"`      // requests that met a fault
	Faults    []Fault        `json:"faults"`    // those in force
}

// NewChaos puts a well-behaved Chaos before inner.
func NewChaos(inner http.Handler) *Chaos {
	return &Chaos{inner: inner, stats: ChaosStats{Hits: make(map[Kind]int64)}}
}

// Set replaces all faults; none ends them. Several apply together to each request.
// An unknown kind is an error and changes nothing.
func (c *Chaos) Set(faults ...Fault) error {
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

// Stats returns the counts of this moment.
func (c *Chaos) Stats() ChaosStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Hits = maps.Clone(s.Hits)
	s.Faults = slices.Clone(c.faults)
	return s
}

// take returns the faults of one request and counts them down.
func (c *Chaos) take(r *http.Request, body []byte) []Fault {
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
	case FaultStale:
		return reused(r)
	case FaultReject:
		return bytes.Contains(body, []byte(`"`+f.field()+`"`))
	}
	return true
}

// ServeHTTP passes a request on, with what faults are in force for it.
func (c *Chaos) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ctl" {
		c.control(w, r)
		return
	}
	c.enter()
	defer func() { c.leave(r.Context().Err() != nil) }()

	// The whole body is read first: net/http only notices that a client left once
	// there is nothing more to read from it.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		(&apiError{status: http.StatusBadRequest, message: "the body could not be read"}).write(w, r.URL.Path)
		return
	}
	r = r.WithContext(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))

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

func (c *Chaos) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Requests++
	c.stats.Open++
}

func (c *Chaos) leave(gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Open--
	if gone {
		c.stats.Cancelled++
	}
}

// maxControl bounds a control message: faults are small.
const maxControl = 1 << 20

// control serves /ctl. Whether the answer arrives is not its business.
func (c *Chaos) control(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodDelete:
		_ = c.Set()
	case http.MethodPost:
		faults, err := readFaults(http.MaxBytesReader(w, r.Body, maxControl))
		if err == nil {
			err = c.Set(faults...)
		}
		if err != nil {
			badRequest("", "%v", err).write(w, r.URL.Path)
			return
		}
	default:
		(&apiError{status: http.StatusMethodNotAllowed, message: "/ctl takes GET, POST and DELETE"}).write(w, r.URL.Path)
		return
	}
	_ = writeJSON(w, http.StatusOK, c.Stats())
}

// readFaults reads one fault or a list.
func readFaults(from io.Reader) ([]Fault, error) {
	b, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '[' {
		var list []Fault
		err = json.Unmarshal(b, &list)
		return list, err
	}
	var one Fault
	if err := json.Unmarshal(b, &one); err != nil {
		return nil, err
	}
	return []Fault{one}, nil
}
