package server

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// streamingEngine is a storingEngine that sends the first event of a stream and then waits.
type streamingEngine struct {
	storingEngine
	t       *testing.T
	release chan struct{}
	once    sync.Once
	left    atomic.Int32 // number of clients that disconnected before the end
}

func newStreamingEngine(t *testing.T) *streamingEngine {
	s := &streamingEngine{storingEngine: storingEngine{name: "s"}, t: t, release: make(chan struct{})}
	t.Cleanup(s.end)
	return s
}

// end ends all streams.
func (s *streamingEngine) end() { s.once.Do(func() { close(s.release) }) }

func (s *streamingEngine) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodPost || q.URL.Path != "/v1/responses" {
		if q.URL.Query().Get("stream") != "true" {
			s.storingEngine.ServeHTTP(w, q)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		writeNow(s.t, w, fmt.Sprintf(deltaEvent, 1)+completedEvent)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	writeNow(s.t, w, createdEvent)
	select {
	case <-s.release:
		writeNow(s.t, w, fmt.Sprintf(deltaEvent, 1)+completedEvent)
	case <-q.Context().Done():
		s.left.Add(1)
	}
}

// TestAStreamedResponseCanBeUsedFromItsFirstEvent: it can be read, resumed and cancelled while it is
// generated, and after its client has left, by its own tenant only.
func TestAStreamedResponseCanBeUsedFromItsFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newStreamingEngine(t)
		keys := fmt.Sprintf("auth: { keys: [ { name: all, sha256: %s }, { name: few, sha256: %s } ] }", digestOfKey,
			digestOfLittle)
		r := newRig(t, strings.Replace(plain, "auth: { required: false }", keys, 1), engine)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/responses",
			strings.NewReader(`{"model":"small","input":"hi","stream":true,"background":true}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", allKey)
		req.Header.Set("Content-Type", "application/json")
		resp, err := r.net.transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "event: response.created\n" {
			t.Fatalf("%q, %v", line, err)
		}
		checkRequests := func(when string) {
			t.Helper()
			for _, c := range []struct{ method, path string }{
				{"GET", "/v1/responses/resp_s1"}, {"GET", "/v1/responses/resp_s1?stream=true&starting_after=0"},
				{"POST", "/v1/responses/resp_s1/cancel"},
			} {
				a := r.do(c.method, c.path, "", "Authorization", allKey)
				if a.status != http.StatusOK {
					t.Errorf("%s, %s %s: %d %s", when, c.method, c.path, a.status, a.body)
				}
				if strings.Contains(c.path, "stream") && a.body != fmt.Sprintf(deltaEvent, 1)+completedEvent {
					t.Errorf("%s, resumed: %q", when, a.body)
				}
				if a := r.do(c.method, c.path, "", "Authorization", fewKey); a.status != http.StatusNotFound {
					t.Errorf("%s, another tenant's %s %s: %d %s", when, c.method, c.path, a.status, a.body)
				}
			}
		}
		checkRequests("while it is generated")
		leave()
		r.until("the engine sees its client leave", func() bool { return engine.left.Load() == 1 })
		checkRequests("after its client left")
		checkRequests("after it was resumed")
	})
}

// TestOnlyStoredResponsesAreRemembered: neither responses with store: false nor answers that are no
// response.
func TestOnlyStoredResponsesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, &storingEngine{name: "a"})
		for _, c := range []struct {
			path, body string
			stored     bool
		}{
			{"/v1/responses", `{"model":"small","input":"hi"}`, true},
			{"/v1/responses", `{"model":"small","input":"hi","store":null}`, true},
			{"/v1/responses", `{"model":"small","input":"hi","store":true}`, true},
			{"/v1/responses", `{"model":"small","input":"hi","store":false}`, false},
			{"/v1/responses", `{"model":"small","input":"hi","background":true}`, true},
			{"/v1/responses/compact", `{"model":"small","input":"hi"}`, false},
			{"/v1/responses/input_tokens", `{"model":"small","input":"hi"}`, false},
			{"/v1/chat/completions", hello, false},
		} {
			_, before := r.proxy.Remembered()
			if a := r.post(c.path, c.body); a.status != http.StatusOK {
				t.Errorf("%s: %d %s", c.path, a.status, a.body)
			}
			_, after := r.proxy.Remembered()
			if got := after > before; got != c.stored {
				t.Errorf("%s %s: remembered %v, want %v", c.path, c.body, got, c.stored)
			}
		}
	})
}
