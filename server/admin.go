package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"tierway/breaker"
	"tierway/routing"
)

// adminHandler is the operators' plane: metrics without a key, everything under
// /admin/ with an admin key. Without admin keys it is closed, never open.
func (s *Server) adminHandler() http.Handler {
	e := newEngine()
	if s.snapshot.Load().file.Metrics.Listen == "" {
		e.GET("/metrics", gin.WrapH(s.metrics.Handler()))
	}
	s.probes(e)
	e.GET("/admin/workers", s.admin(s.listWorkers))
	e.NoRoute(func(c *gin.Context) { problem(c.Writer, http.StatusNotFound, "There is nothing at this address.") })
	e.NoMethod(func(c *gin.Context) {
		problem(c.Writer, http.StatusMethodNotAllowed, "This address takes other methods: "+c.Writer.Header().Get("Allow")+".")
	})
	return e
}

// metricsHandler serves the metrics on an address of their own.
func (s *Server) metricsHandler() http.Handler {
	e := newEngine()
	e.GET("/metrics", gin.WrapH(s.metrics.Handler()))
	return e
}

// sharePlanes serves both planes on one address.
func sharePlanes(data, admin http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" || strings.HasPrefix(r.URL.Path, "/admin/") {
			admin.ServeHTTP(w, r)
			return
		}
		data.ServeHTTP(w, r)
	})
}

// admin lets only an admin key through.
func (s *Server) admin(h func(w http.ResponseWriter)) gin.HandlerFunc {
	return func(c *gin.Context) {
		key, ok := credential(c.Request.Header)
		if ok {
			_, ok = s.snapshot.Load().admins.Authenticate(key)
		}
		if !ok {
			c.Writer.Header().Set("WWW-Authenticate", "Bearer")
			problem(c.Writer, http.StatusUnauthorized, "Send an admin key as `Authorization: Bearer <key>`; its digest stands under admin.keys.")
			return
		}
		h(c.Writer)
	}
}

// problem answers with an error of RFC 9457.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeJSON(w, status, map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail})
}

// workerState is one worker as GET /admin/workers shows it.
type workerState struct {
	Name          string  `json:"name"`
	Pool          string  `json:"pool"`
	State         string  `json:"state"` // up, down, cooling, open (its breaker) or half_open
	Since         string  `json:"since,omitempty"`
	LastError     string  `json:"last_error,omitempty"`
	Weight        int     `json:"weight"`
	Share         float64 `json:"share"` // of its usual load, below 1 while it starts slowly
	Inflight      int     `json:"inflight"`
	MaxInflight   int     `json:"max_inflight"`
	PendingTokens int64   `json:"pending_tokens"`
	OutputTokens  int64   `json:"output_tokens"`
	Waiting       int     `json:"engine_waiting"`
	Running       int     `json:"engine_running"`
	KVUsage       float64 `json:"kv_usage"`

	Breaker breakerState            `json:"breaker"`
	Learned routing.WorkerEstimates `json:"learned"`
}

// breakerState is a worker's breaker as GET /admin/workers shows it.
type breakerState struct {
	State               string  `json:"state"`
	Until               string  `json:"until,omitempty"` // when an open one lets a request try
	Cause               string  `json:"cause,omitempty"` // of the last change
	Failures            int     `json:"failures"`        // within the window
	Requests            int     `json:"requests"`        // likewise
	ConsecutiveFailures int     `json:"consecutive_failures"`
	SlowRatio           float64 `json:"slow_ratio"` // how slow beside its peers; 0 is not known
	Samples             int     `json:"slow_samples"`
}

// listWorkers answers with every worker's state and load, and with what its pool
// has learned.
func (s *Server) listWorkers(w http.ResponseWriter) {
	out := []workerState{}
	pools := map[string]poolState{}
	for _, p := range s.snapshot.Load().pools {
		learned := p.routing.Estimates()
		byID := map[string]routing.WorkerEstimates{}
		for _, w := range learned.Workers {
			byID[w.ID] = w
		}
		for _, v := range p.routing.Snapshot(time.Now()) {
			out = append(out, p.workerState(v, byID[v.ID]))
		}
		st := poolState{Policy: p.Policy.Name, Rate: learned.Rate, Output: learned.OutputTokens, Scale: learned.PromptScale}
		if a, ok := p.policy.(routing.Adaptive); ok {
			d := a.Depth()
			st.Depth = &depthState{SharedBlocks: d.Shared, Splits: d.Splits, Changes: d.Changes}
		}
		pools[p.Name] = st
	}
	writeJSON(w, http.StatusOK, map[string]any{"workers": out, "pools": pools})
}

// poolState is what GET /admin/workers shows of a pool.
type poolState struct {
	Policy string           `json:"policy"`
	Rate   float64          `json:"prefill_rate"`  // of a usual worker, tokens/s
	Output routing.Estimate `json:"output_tokens"` // of an answer
	Scale  routing.Estimate `json:"prompt_scale"`  // prompt tokens as engines count them, for each estimated one
	Depth  *depthState      `json:"depth,omitempty"`
}

// depthState is where in prompts chwbl's keys lie.
type depthState struct {
	SharedBlocks int   `json:"shared_blocks"` // at the beginning, that most of the traffic has in common
	Splits       int   `json:"splits"`        // beginnings that are too much for one worker
	Changes      int64 `json:"changes"`       // how often any of this changed
}

// workerState puts together what is known of one worker.
func (p *pool) workerState(v routing.WorkerView, learned routing.WorkerEstimates) workerState {
	m := v.Ref.(*member)
	seen, b := m.worker.Status(), m.gate.View()
	st := workerState{Name: v.ID, Pool: p.Name, State: "up", Weight: v.Weight, Share: v.Share, Inflight: v.Inflight, MaxInflight: v.MaxInflight,
		PendingTokens: v.PendingTokens, OutputTokens: v.OutputTokens, Learned: learned,
		LastError: seen.LastError, Waiting: seen.Waiting, Running: seen.Running, KVUsage: seen.KVUsage,
		Breaker: breakerState{State: b.State.String(), Cause: b.Cause, Failures: b.Failures, Requests: b.Requests,
			ConsecutiveFailures: b.ConsecutiveFailures, SlowRatio: b.SlowRatio, Samples: b.Samples}}
	switch {
	case !v.Up:
		st.State = "down"
	case b.State != breaker.Closed:
		st.State = b.State.String()
	case v.Cooling > 0:
		st.State = "cooling"
	}
	if !seen.Since.IsZero() {
		st.Since = seen.Since.UTC().Format(time.RFC3339)
	}
	if !b.Until.IsZero() {
		st.Breaker.Until = b.Until.UTC().Format(time.RFC3339)
	}
	return st
}
