package engines

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// Ranks is one server with several data-parallel engines, as vLLM with --data-parallel-size has them. The
// header X-data-parallel-rank selects the engine of a request. Requests without it go to the ranks in turn.
// It is an http.Handler and safe for concurrent use.
type Ranks struct {
	engines []*Engine
	next    atomic.Uint64
}

// NewRanks returns a server with n engines. Their names end in @ and the rank.
func NewRanks(c Config, n int) *Ranks {
	s := &Ranks{engines: make([]*Engine, n)}
	for r := range s.engines {
		own := c
		own.Name = fmt.Sprintf("%s@%d", c.Name, r)
		s.engines[r] = New(own)
		s.engines[r].rank = r
	}
	return s
}

// Rank returns the engine of a rank.
func (s *Ranks) Rank(r int) *Engine { return s.engines[r] }

// Close closes all engines.
func (s *Ranks) Close() {
	for _, e := range s.engines {
		e.Close()
	}
}

// ServeHTTP answers one request. Metrics and the sources of events are those of all ranks.
func (s *Ranks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rank, err := s.rankOf(r)
	if err != nil {
		s.engines[0].conclude(w, r, err)
		return
	}
	switch r.URL.Path {
	case "/metrics":
		var b strings.Builder
		for _, e := range s.engines {
			e.appendMetrics(&b)
		}
		err = writeBytes(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(b.String()))
	case "/kv_event_sources":
		err = writeEventSources(w, s.engines...)
	default:
		s.engines[rank].ServeHTTP(w, r)
		return
	}
	s.engines[rank].conclude(w, r, err)
}

// rankOf returns the rank that a request selects, or the next one.
func (s *Ranks) rankOf(r *http.Request) (int, error) {
	selected := r.Header.Get("X-Data-Parallel-Rank")
	if selected == "" {
		return int(s.next.Add(1) % uint64(len(s.engines))), nil
	}
	rank, err := strconv.Atoi(selected)
	if err != nil || rank < 0 || rank >= len(s.engines) {
		return 0, badRequest("data_parallel_rank", "data_parallel_rank %s is out of range [0, %d)", selected, len(s.engines))
	}
	return rank, nil
}
