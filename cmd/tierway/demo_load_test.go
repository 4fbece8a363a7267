package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// decisionsOf returns the decisions of a demo.
func decisionsOf(t *testing.T, d *runningDemo) (all []demoDecision) {
	t.Helper()
	var answer struct {
		Items []demoDecision `json:"items"`
	}
	text := d.get(t, "/admin/decisions?limit=1000")
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return answer.Items
}

// demoDecision has some fields of a decision.
type demoDecision struct {
	Status              int
	Tenant, Class, Tier string
	Stream              bool
}

func TestTheDemoLoadUsesAllTiersAndClassesAndMeetsALimit(t *testing.T) {
	d := startDemo(t, "--load", "50")
	want := map[demoDecision]bool{
		{200, chatApp, "interactive", "small", true}:  false,
		{200, chatApp, "interactive", "small", false}: false,
		{200, chatApp, "background", "small", false}:  false,
		{200, chatApp, "interactive", "medium", true}: false,
		{200, chatApp, "interactive", "large", true}:  false,
		{200, nightlyBatch, "batch", "small", false}:  false,
		{200, nightlyBatch, "batch", "medium", false}: false,
		{429, nightlyBatch, "batch", "small", false}:  false,
	}
	missing := len(want)
	until(t, "a request of each kind", func() bool {
		for _, d := range decisionsOf(t, d) {
			if seen, wanted := want[d]; wanted && !seen {
				want[d] = true
				missing--
			}
			if d.Status != http.StatusOK && (d.Status != http.StatusTooManyRequests || d.Tenant != nightlyBatch) {
				t.Fatalf("a request of the load failed: %+v", d)
			}
		}
		return missing == 0
	})
	if err := d.stop(); err != nil || d.messages.Len() > 0 {
		t.Errorf("%v: the load left messages:\n%s", err, d.messages.String())
	}
}

func TestADemoHasNoLoadAtZeroAndWithJSONAlone(t *testing.T) {
	for _, args := range [][]string{nil, {"--load", "0"}} { // startDemo adds --json
		if d := startDemo(t, args...); d.Load != 0 {
			t.Errorf("%v: the load is %v requests per second", args, d.Load)
		}
	}
}

// TestADemoLoadHasItsRate: a load sends about as many requests per second as its rate, and a load of 0 ends at once
// without a request.
func TestADemoLoadHasItsRate(t *testing.T) {
	for rate, want := range map[float64]struct {
		least, most int64
		lasts       time.Duration
	}{
		0: {0, 0, 0}, 2: {90, 150, time.Minute}, maxDemoLoad: {2800, 3200, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			var sent atomic.Int64
			client := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				sent.Add(1)
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begin := time.Now()
			demoLoad{url: "http://gateway/v1", rate: rate}.sendAll(ctx, client)
			if n := sent.Load(); n < want.least || n > want.most {
				t.Errorf("a load of %v per second sent %d requests in a minute, want %d to %d", rate, n, want.least, want.most)
			}
			if lasted := time.Since(begin); lasted != want.lasts {
				t.Errorf("a load of %v per second ended after %v, want %v", rate, lasted, want.lasts)
			}
		})
	}
}

// roundTripper answers requests without a network.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip is part of http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAStoppedDemoLoadHasNoRequestInFlight(t *testing.T) {
	var inflight atomic.Int64
	arrived := make(chan struct{}, 100)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		defer inflight.Add(-1)
		inflight.Add(1)
		arrived <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body) // the server detects a closed connection after the body
		<-r.Context().Done()
	})
	stop := startDemoLoad(context.Background(), demoLoad{url: s.URL, rate: maxDemoLoad})
	for range 5 {
		<-arrived
	}
	stop()
	s.Close() // waits for the handlers
	if n := inflight.Load(); n != 0 {
		t.Errorf("%d requests are in flight", n)
	}
}

func TestTheDemoTrafficIsEqualForEqualSeeds(t *testing.T) {
	a, b, c := newDemoTraffic(1), newDemoTraffic(1), newDemoTraffic(2)
	differs := false
	for range 200 {
		x, y, z := a.next(), b.next(), c.next()
		if x.tenant != y.tenant || x.class != y.class || x.session != y.session || !bytes.Equal(x.body, y.body) ||
			a.pause(1) != b.pause(1) {
			t.Fatalf("%s\n%s", x.body, y.body)
		}
		c.pause(1)
		differs = differs || !bytes.Equal(x.body, z.body)
	}
	if !differs {
		t.Error("another seed gives the same requests")
	}
}

func TestTheDemoLogOmitsOnlyTheLoad(t *testing.T) {
	var out bytes.Buffer
	log := demoLogFilter{&out}
	for _, line := range []string{`{"tenant":"chat-app"}`, `{"tenant":"nightly-batch","key":"k"}`} {
		if n, err := log.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%s: %d, %v", line, n, err)
		}
	}
	const kept = `{"tenant":"demo","requested_model":"\"tenant\":\"chat-app\""}` + "\n" + `{"status":401}`
	if _, err := log.Write([]byte(kept)); err != nil || out.String() != kept {
		t.Errorf("%q, %v", out.String(), err)
	}
}
