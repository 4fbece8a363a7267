package pairing

import (
	"slices"
	"sync"
	"time"

	"tierway/openai"
)

// Bounds of the samples that wait.
const (
	// MaxSamples is the largest number of samples: those of 10,000 requests at a share of 1 %.
	MaxSamples = 100
	// MaxBytes is the largest memory of their bodies: a hundred bodies of 300 KiB.
	MaxBytes = 32 << 20
	// MaxAge is the longest time from a request to its repetition. The answer to an older one may differ
	// because the world has changed.
	MaxAge = time.Hour
)

// Sample is a request that is to be repeated. Its body is a prompt: it stays in memory and is never logged.
type Sample struct {
	ID      string    // X-Request-ID of the request
	At      time.Time // when the request arrived
	Tenant  string    // of the client
	Key     string    // id of the client's key; empty without one
	Tiers   [2]string // names of the first and the last tier when the request arrived
	Path    string    // of the request, such as /v1/chat/completions
	Dialect openai.Dialect
	Header  map[string][]string // of the API, such as Anthropic-Version
	Body    []byte

	answered bool // guarded by the mutex of Samples
}

// Expired reports whether the sample is older than MaxAge at now.
func (s *Sample) Expired(now time.Time) bool { return now.Sub(s.At) > MaxAge }

// Samples holds the samples that wait to be repeated. Beyond a bound it drops the oldest ones, because newer ones
// are more like the requests to come. It is safe for concurrent use. The zero value is empty.
type Samples struct {
	mu    sync.Mutex
	list  []*Sample // the oldest first
	bytes int
}

// Add adds the sample of a request without an answer yet, and returns how many samples were dropped for it. A
// body above MaxBytes is dropped itself. The caller must call Answered or Remove at the end of the request.
func (s *Samples) Add(one *Sample) (dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(one.Body) > MaxBytes {
		return 1
	}
	for len(s.list) == MaxSamples || s.bytes+len(one.Body) > MaxBytes {
		s.deleteLocked(0)
		dropped++
	}
	s.list = append(s.list, one)
	s.bytes += len(one.Body)
	return dropped
}

// Answered makes a sample ready for Next, unless it was dropped.
func (s *Samples) Answered(one *Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.answered = true
}

// Remove removes a sample, unless it was dropped.
func (s *Samples) Remove(one *Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.list, one); i >= 0 {
		s.deleteLocked(i)
	}
}

// Next removes and returns the oldest sample of an answered request, or nil.
func (s *Samples) Next() *Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.list, func(one *Sample) bool { return one.answered })
	if i < 0 {
		return nil
	}
	one := s.list[i]
	s.deleteLocked(i)
	return one
}

// Expire removes the samples that are older than MaxAge at now, and returns their number.
func (s *Samples) Expire(now time.Time) int {
	return s.Drop(func(one *Sample) bool { return one.Expired(now) })
}

// Drop removes the samples for which drop returns true, and returns their number.
func (s *Samples) Drop(drop func(*Sample) bool) (dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.list) - 1; i >= 0; i-- {
		if drop(s.list[i]) {
			s.deleteLocked(i)
			dropped++
		}
	}
	return dropped
}

// Len returns the number of samples, and the bytes of their bodies.
func (s *Samples) Len() (samples, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list), s.bytes
}

func (s *Samples) deleteLocked(i int) {
	s.bytes -= len(s.list[i].Body)
	s.list = slices.Delete(s.list, i, i+1)
}

// Load is the load of a tier.
type Load struct {
	Queued  int // requests that wait in the tier's queue
	Workers []WorkerLoad
}

// WorkerLoad is the load of one worker.
type WorkerLoad struct {
	Usable    bool // in rotation (up, breaker closed, not drained), in no backoff and not hung
	Saturated bool // its engine's metrics say so
	Waiting   int  // requests in the engine's own queue
	Inflight  int
	Slots     int // limit on Inflight, configured or learned; 0: unknown
}

// HasRoom reports whether a tier has room for a repeated request: no request waits in its queue, and its usable
// workers have no waiting request, are not saturated and use less than half of their slots together. A worker
// without a known limit counts as one slot, so that it has room only while it is idle.
func (l Load) HasRoom() bool {
	if l.Queued > 0 {
		return false
	}
	inflight, slots := 0, 0
	for _, w := range l.Workers {
		if !w.Usable {
			continue
		}
		if w.Saturated || w.Waiting > 0 {
			return false
		}
		inflight += w.Inflight
		slots += max(1, w.Slots)
	}
	return 2*inflight < slots
}
