package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheOldestRequestInFlightIsKnown: in whatever order requests end.
func TestTheOldestRequestInFlightIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flying
		begun := time.Now()
		var all [100]exchange
		for i := range all {
			all[i].in.start = time.Now()
			f.add(&all[i])
			time.Sleep(time.Second + 16*time.Nanosecond) // another shard
		}
		check := func(oldest int) {
			t.Helper()
			want := time.Duration(0)
			if oldest < len(all) {
				want = time.Since(begun) - time.Duration(oldest)*(time.Second+16)
			}
			if got := f.oldest(); got != want {
				t.Errorf("with %d as the oldest the age is %v, want %v", oldest, got, want)
			}
		}
		check(0)
		for i := 99; i > 50; i-- { // the newest first
			f.remove(&all[i])
		}
		f.remove(&all[1]) // from the middle
		check(0)
		f.remove(&all[0])
		check(2)
		for i := 2; i <= 50; i++ {
			check(i)
			f.remove(&all[i])
		}
		check(len(all))
	})
}

// TestAScrapeShowsTheOldestRequest: until it has ended.
func TestAScrapeShowsTheOldestRequest(t *testing.T) {
	begun, on := make(chan struct{}), make(chan struct{})
	r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-on
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
	if v := shown(); v == "" || v == "0" {
		t.Errorf("with a request in flight it is %q", v)
	}
	close(on)
	<-ended
	for r.Inflight() > 0 {
		<-time.After(time.Millisecond)
	}
	if v := shown(); v != "0" {
		t.Errorf("without requests it is %q", v)
	}
}
