package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"tierway/memnet/memredis"
)

// loopResult has the answers to the clients of a closed loop, and the longest time of a request.
type loopResult struct {
	answers map[string]int // by status, and by the code of a 5xx
	slowest time.Duration
}

// eachClient runs clients concurrently and waits for them. Each calls send as often as requests states, one call after
// the other.
func eachClient(clients, requests int, send func(client, request int)) {
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for request := range requests {
				send(client, request)
			}
		})
	}
	all.Wait()
}

// closedLoop runs clients that send each request after the answer to their previous one. body returns the body of a
// request.
func (r *rig) closedLoop(clients, requests int, body func(client, request int) string) loopResult {
	r.t.Helper()
	out := loopResult{answers: map[string]int{}}
	var mu sync.Mutex
	eachClient(clients, requests, func(client, request int) {
		began := time.Now()
		got := r.post("/v1/chat/completions", body(client, request))
		took, kind := time.Since(began), fmt.Sprint(got.status)
		if _, rest, found := strings.Cut(got.body, `"code":"`); got.status >= 500 && found {
			code, _, _ := strings.Cut(rest, `"`)
			kind += " " + code
			if got.header.Get("Retry-After") == "" {
				kind += " without Retry-After"
			}
		}
		mu.Lock()
		defer mu.Unlock()
		out.answers[kind]++
		out.slowest = max(out.slowest, took)
	})
	return out
}

// want reports answers of other kinds, and kinds without an answer.
func (l loopResult) want(t *testing.T, what string, kinds ...string) {
	t.Helper()
	left := len(l.answers)
	for _, kind := range kinds {
		if l.answers[kind] > 0 {
			left--
		} else {
			t.Errorf("%s: no answer is %s: %v", what, kind, l.answers)
		}
	}
	if left > 0 {
		t.Errorf("%s: the answers are %v, want only %q", what, l.answers, kinds)
	}
}

// failingHook is a service that allows requests, and fails while it is faulty.
type failingHook struct {
	faulty atomic.Bool
	line   func(t *testing.T, f *failingHook, more string) string // its entry in the configuration
}

// webHook returns a hook of type http with a fault.
func webHook(fault http.HandlerFunc) *failingHook {
	return &failingHook{line: func(t *testing.T, f *failingHook, more string) string {
		return newHookService(t, func(w http.ResponseWriter, r *http.Request) {
			if f.faulty.Load() {
				fault(w, r)
			} else {
				says(sayAllow)(w, r)
			}
		}).line("guard", more)
	}}
}

// grpcHook returns a hook of type ext_proc with a fault.
func grpcHook(fault func() error) *failingHook {
	return &failingHook{line: func(t *testing.T, f *failingHook, more string) string {
		p := newProcessor(t)
		p.headers = func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error) {
			if f.faulty.Load() {
				return nil, fault()
			}
			return toHeaders(nil), nil
		}
		return p.line(more)
	}}
}

// absentHook returns a hook that refuses connections.
func absentHook(entry string) *failingHook {
	return &failingHook{line: func(_ *testing.T, _ *failingHook, more string) string { return fmt.Sprintf(entry, more) }}
}

// TestFailingHooksUnderLoad: 80 clients send requests in a closed loop, while a hook is good, fails in each way, and is
// good again. With on_error: pass no request fails or waits longer than the hook's timeout. With block, the only
// failure is 503 hook_unavailable, and no unchecked request reaches an engine.
func TestFailingHooksUnderLoad(t *testing.T) {
	const unavailable, clients, requests = "503 hook_unavailable", 80, 5
	for name, newHook := range map[string]func() *failingHook{
		"slow": func() *failingHook {
			return webHook(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		},
		"500": func() *failingHook {
			return webHook(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
		},
		"404":      func() *failingHook { return webHook(http.NotFound) },
		"bad JSON": func() *failingHook { return webHook(says(`{"action":`)) },
		"cut": func() *failingHook {
			return webHook(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		},
		"refused reply": func() *failingHook { return webHook(says(transformTo(chatBody("small", "new", "")))) },
		"busy": func() *failingHook { // 80 clients, but at most 64 calls
			return webHook(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(190 * time.Millisecond)
				says(sayAllow)(w, r)
			})
		},
		"absent":      func() *failingHook { return absentHook(`{ name: guard, url: "http://127.0.0.1:9"%s }`) },
		"grpc error":  func() *failingHook { return grpcHook(func() error { return grpcstatus.Error(codes.Internal, "no") }) },
		"grpc slow":   func() *failingHook { return grpcHook(func() error { time.Sleep(time.Second); return nil }) },
		"grpc absent": func() *failingHook { return absentHook(`{ name: guard, type: ext_proc, url: "127.0.0.1:9"%s }`) },
	} {
		for _, onError := range []string{"pass", "block"} {
			t.Run(name+" "+onError, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hook := newHook()
					r, engine := newHookRig(t, plain, hook.line(t, hook, ", on_error: "+onError))
					body := func(int, int) string { return chatBody("small", "Hi", "") }
					absent := strings.HasSuffix(name, "absent")
					if !absent {
						// Without concurrency: more than 64 calls at a time are not made even if the service answers at once.
						r.closedLoop(1, requests, body).want(t, "before", "200")
					}
					hook.faulty.Store(true)
					before := len(engine.Requests())
					got := r.closedLoop(clients, requests, body)
					switch {
					case onError == "pass":
						got.want(t, "faulty", "200")
					case name == "busy":
						got.want(t, "faulty", "200", unavailable)
					default:
						got.want(t, "faulty", unavailable)
					}
					if n := len(engine.Requests()) - before; n != got.answers["200"] || got.slowest > 200*time.Millisecond {
						t.Errorf("the engine has received %d requests of %v; the slowest took %v", n, got.answers, got.slowest)
					}
					if hook.faulty.Store(false); !absent {
						time.Sleep(8 * time.Second) // longer than the breaker is open
						r.closedLoop(1, requests, body).want(t, "afterwards", "200")
					}
				})
			})
		}
	}
}

// TestC7ErrorsOfRedisUnderLoadFailNoRequest: while Redis answers errors, no request of a closed loop fails or takes
// more than 20 ms, and answers are found again afterwards.
func TestC7ErrorsOfRedisUnderLoadFailNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memredis.Start(t, networkOf(t).Network)
		r := newSharedRig(t, server.URL, "", &numberingEngine{})
		body := func(client, request int) string {
			return chatWith("s", fmt.Sprintf("Question %d of client %d", request%3, client))
		}
		r.closedLoop(20, 6, body).want(t, "before", "200")
		server.SetError("LOADING Redis is loading the dataset in memory")
		got := r.closedLoop(20, 20, body)
		if got.want(t, "faulty", "200"); got.slowest > 20*time.Millisecond {
			t.Errorf("the slowest request took %v", got.slowest)
		}
		server.SetError("")
		time.Sleep(5 * time.Second)
		r.closedLoop(20, 6, body).want(t, "afterwards", "200")
		if _, result := r.cached("/v1/chat/completions", body(0, 0)); result != exactHit {
			t.Errorf("afterwards a repeated request is a %s", result)
		}
	})
}
