package server

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// exposedHeaders are the answer headers that a browser's script may read.
const exposedHeaders = "X-Request-ID, Request-ID, X-Model-Tier, X-Tier-Reason, X-Routed-To, X-Route-Reason, X-Max-Tokens-Lowered, " +
	"X-Tierway-Hooks, " +
	"X-Queue-Ms, " +
	"X-Request-Duration, Retry-After, Retry-After-Ms, X-Should-Retry, Openai-Processing-Ms, " +
	"X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, " +
	"X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

// cors lets pages of the configured origins use the data plane. Without origins it adds no headers.
// Cookies are never allowed, because keys are sent in headers.
func (p *planes) cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := p.control.Snapshot().File
		c := f.CORS
		if len(c.Origins) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		allowed := origin != "" && (slices.Contains(c.Origins, "*") || slices.Contains(c.Origins, origin))
		if allowed {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", exposedHeaders)
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			if allowed {
				setPreflightHeaders(h, r, c.MaxAge)
			}
			// a closed connection needs no deadline
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(f.Timeouts.ClientStall))
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func setPreflightHeaders(h http.Header, r *http.Request, maxAge time.Duration) {
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if requested := r.Header.Get("Access-Control-Request-Headers"); requested != "" {
		h.Set("Access-Control-Allow-Headers", requested)
	}
	if maxAge > 0 {
		h.Set("Access-Control-Max-Age", strconv.Itoa(int(maxAge/time.Second)))
	}
}
