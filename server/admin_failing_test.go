package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/server/admin"
)

// failingRig is a gateway with a key and engines that answer chats with a status, while their health is good.
func failingRig(t *testing.T, status int, body string, workers int) *adminRig {
	t.Helper()
	sick := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(body))
	})
	yaml := strings.Replace(adminYAML(""), `health: { path: "off" }`, `health: { path: /health, interval: 1s, timeout: 1s }`, 1)
	handlers := []http.Handler{}
	for range workers {
		handlers = append(handlers, sick)
	}
	r := adminRigOf(newRig(t, yaml, handlers...))
	r.runControl()
	return r
}

// askAbout sends a chat of the tenant filed. Another topic makes another request, which proves more against a worker.
func (r *adminRig) askAbout(topic int) {
	r.post("/v1/chat/completions", chatBody("small", fmt.Sprint("About ", topic), ""), "Authorization", "Bearer filed")
}

// errorsOf returns the subjects of the errors in an overview's attention.
func errorsOf(v admin.OverviewView) string {
	var all []string
	for _, i := range v.Attention {
		if i.Severity == "error" {
			all = append(all, i.Subject)
		}
	}
	return strings.Join(all, ", ")
}

// TestOverviewNamesAWorkerThatFailsEveryAttempt at any moment: its breaker changes between open and half open, because
// its health checks succeed.
func TestOverviewNamesAWorkerThatFailsEveryAttempt(t *testing.T) {
	for workers, subjects := range map[int][]string{
		1: {"worker w0", "tier small"},
		2: {"worker w0", "worker w1", "tier small"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := failingRig(t, http.StatusInternalServerError, `{"error":{"message":"CUDA error"}}`, workers)
			for n := range 12 {
				r.askAbout(n)
			}
			seen := map[string]bool{}
			for n := range 60 {
				time.Sleep(time.Second)
				v := r.overview()
				for _, subject := range subjects {
					if !strings.Contains(errorsOf(v), subject) {
						t.Errorf("%d workers in %v: the errors are %q, without %s", workers, v.Tiers[0].Workers, errorsOf(v), subject)
					}
				}
				for state := range v.Tiers[0].Workers {
					seen[state] = true
				}
				r.askAbout(100 + n)
			}
			if len(seen) < 2 && workers > 1 {
				t.Errorf("the test has seen the states %v only", seen)
			}
		})
	}
}

// TestOverviewNamesATierOfWhichEveryRequestIsRejected: its workers are up and no request fails, so its error rate is 0.
func TestOverviewNamesATierOfWhichEveryRequestIsRejected(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   string
	}{
		{http.StatusNotFound, `{"error":{"message":"The model does not exist."}}`,
			"None of the last 3 requests was answered: 3 rejected, most with worker_refused. decisions?tier=small"},
		{http.StatusTooManyRequests, `{"error":{"message":"busy"}}`,
			"None of the last 3 requests was answered: 3 rejected, most with rate_limit_exceeded. decisions?tier=small"},
		{http.StatusUnauthorized, `{"error":{"message":"wrong key"}}`,
			"None of the last 3 requests was answered: 3 failed, most with worker_auth_failed. decisions?tier=small"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := failingRig(t, tt.status, tt.body, 2)
			r.startSampler()
			time.Sleep(2 * time.Second)
			for n := range 2 {
				r.askAbout(n)
				time.Sleep(2 * time.Second)
			}
			time.Sleep(2 * time.Second)
			if got := attentionOn(r.overview(), "tier small"); strings.Contains(got, "answered") {
				t.Errorf("%d: two requests prove nothing: %q", tt.status, got)
			}
			r.askAbout(2)
			time.Sleep(2 * time.Second)
			v := r.overview()
			if got := attentionOn(v, "tier small"); !strings.Contains(got, tt.want) {
				t.Errorf("%d: the overview says %q, want %q", tt.status, got, tt.want)
			}
			if tier := v.Tiers[0]; *tier.Requests == 0 || *tier.Refused+*tier.Errors < *tier.Requests-0.001 {
				t.Errorf("%d: the rates are %v, %v and %v", tt.status, *tier.Requests, *tier.Errors, *tier.Refused)
			}
			time.Sleep(2 * time.Minute)
			if got := attentionOn(r.overview(), "tier small"); strings.Contains(got, "answered") {
				t.Errorf("%d: after two quiet minutes the overview says %q", tt.status, got)
			}
		})
	}
}

// TestOverviewNamesRequestsThatReachNoTier if no request at all is answered: beside good requests, strangers with wrong
// keys need no operator.
func TestOverviewNamesRequestsThatReachNoTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.startSampler()
		time.Sleep(2 * time.Second)
		stranger := func() { r.post("/v1/chat/completions", chatBody("small", "hi", ""), "Authorization", "Bearer wrong") }
		for range 3 {
			stranger()
		}
		time.Sleep(2 * time.Second)
		const want = "None of the last 3 requests was answered: 3 rejected, most with invalid_api_key. decisions?outcome=refused"
		if got := attentionOn(r.overview(), "requests"); got != want {
			t.Errorf("the overview says %q, want %q", got, want)
		}
		r.askAbout(0)
		time.Sleep(2 * time.Second)
		stranger()
		time.Sleep(2 * time.Second)
		if got := subjects(r.overview()); got != "" {
			t.Errorf("beside a good request the overview names %s", got)
		}
	})
}

// TestBreakerShowsItsOwnAge: a worker that is up for an hour has a breaker that has just opened.
func TestBreakerShowsItsOwnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := failingRig(t, http.StatusInternalServerError, "", 2)
		time.Sleep(time.Hour)
		opened := time.Now()
		for n := range 12 {
			r.askAbout(n)
		}
		for _, w := range decode[workersShown](t, r.callAdmin("eyes", http.MethodGet, "/admin/workers", "")).Workers {
			since, err := time.Parse(time.RFC3339, w.Breaker.Since)
			if w.Breaker.State == "closed" || err != nil || since.Before(opened.Add(-time.Second)) {
				t.Errorf("%s opened at %v: %+v", w.Name, opened, w.Breaker)
			}
			if up, err := time.Parse(time.RFC3339, w.Since); err != nil || !up.Before(opened.Add(-time.Minute)) {
				t.Errorf("%s is up since %s", w.Name, w.Since)
			}
		}
	})
}
