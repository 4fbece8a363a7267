package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestMetricsShowTheAgeOfTheOldestRequest until it has ended.
func TestMetricsShowTheAgeOfTheOldestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, release := make(chan struct{}), make(chan struct{})
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-release
			w.WriteHeader(http.StatusTeapot)
		}))
		shown := func() string {
			rec := httptest.NewRecorder()
			r.metrics.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			_, line, _ := strings.Cut(rec.Body.String(), "\ntierway_inflight_oldest_age_seconds ")
			value, _, _ := strings.Cut(line, "\n")
			return value
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.post("/v1/chat/completions", hello)
		}()
		<-begun
		time.Sleep(3 * time.Second)
		if v := shown(); v != "3" {
			t.Errorf("with a request in flight the age is %q", v)
		}
		close(release)
		<-ended
		synctest.Wait() // its release follows its answer
		if v := shown(); v != "0" {
			t.Errorf("without requests the age is %q", v)
		}
	})
}
