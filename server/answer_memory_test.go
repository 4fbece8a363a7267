package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/server/control"
)

// answerBudgetYAML leaves 40 MiB to the answers of one tenant.
const (
	answerBudget     = "max_body_bytes: 1MiB\nmax_buffered_bytes: 80MiB"
	answerBudgetYAML = plain + answerBudget
)

// longAnswer answers with n bytes of content, with or without a Content-Length.
func longAnswer(n int, announced bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		const begin, end = `{"choices":[{"index":0,"message":{"content":"`, `"},"finish_reason":"stop"}]}`
		w.Header().Set("Content-Type", "application/json")
		if announced {
			w.Header().Set("Content-Length", fmt.Sprint(len(begin)+n+len(end)))
		}
		io.WriteString(w, begin)                      // the gateway may refuse the answer
		io.WriteString(w, strings.Repeat("x", n)+end) // the same
		http.NewResponseController(w).Flush()         // the same
	})
}

// TestMemoryOfAnAnnouncedAnswerIsLittleMoreThanItsLength: its buffer grows to the announced length and not
// beyond, and the copies on the way take a third.
func TestMemoryOfAnAnnouncedAnswerIsLittleMoreThanItsLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, answerBudgetYAML, longAnswer(17<<20, true))
		a := r.post("/v1/chat/completions", hello)
		if a.status != http.StatusOK || len(a.body) < 17<<20 {
			t.Errorf("%d, %d bytes: %.300s", a.status, len(a.body), a.body)
		}
		if used := r.bodyBytes(); used != 0 {
			t.Errorf("%d bytes are still in use", used)
		}
	})
}

// TestAnswersShareTheMemoryOfBodies: an answer without room is 503 with Retry-After before it is read
// whole. No worker is at fault, and the memory is free afterwards.
func TestAnswersShareTheMemoryOfBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, announced := range []bool{true, false} {
			r := newRig(t, fmt.Sprintf(threeWorkersYAML, answerBudget), longAnswer(41<<20, announced),
				longAnswer(41<<20, announced), longAnswer(41<<20, announced))
			a := r.post("/v1/chat/completions", hello)
			if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "max_buffered_bytes") ||
				a.header.Get("Retry-After") == "" {
				t.Errorf("announced %v: %d %.300s %v", announced, a.status, a.body, a.header)
			}
			for range 5 {
				r.post("/v1/chat/completions", hello)
			}
			for _, v := range r.control.Snapshot().Pools[0].Routing.Snapshot(time.Now()) {
				if st := v.Ref.(*control.Member).Gate.View().State; st != breaker.Closed {
					t.Errorf("announced %v: the breaker of %s is %v", announced, v.ID, st)
				}
			}
			if used := r.bodyBytes(); used != 0 {
				t.Errorf("announced %v: %d bytes are still in use", announced, used)
			}
		}
	})
}

// TestManyAnswersOfMiddleLengthAreBounded: answers beyond 64 KiB count while a slow client reads them.
func TestManyAnswersOfMiddleLengthAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, answerBudgetYAML, longAnswer(900<<10, true))
		const clients = 60
		for range clients {
			resp := r.send(t.Context(), r.net.client, "/v1/chat/completions", hello)
			defer resp.Body.Close()
		}
		synctest.Wait()
		if used := r.bodyBytes(); used < 30<<20 || used > 40<<20 {
			t.Errorf("%d clients that do not read: %d bytes are in use", clients, used)
		}
	})
}
