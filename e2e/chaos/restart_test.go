package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// restarting is an engine that ends its streams like vLLM on SIGTERM: with [DONE] and the
// finish_reason "abort", or without a finish_reason if there is no token yet.
type restarting struct {
	next http.Handler
	stop chan struct{} // closed by SIGTERM
}

func (s *restarting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	until := &untilStop{ResponseWriter: w, stop: s.stop}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.next.ServeHTTP(until, r.WithContext(ctx))
	}()
	select {
	case <-ended:
	case <-s.stop:
		until.end()
		cancel()
		<-ended
	}
}

// untilStop passes an answer on until its engine stops.
type untilStop struct {
	http.ResponseWriter
	stop    <-chan struct{}
	mu      sync.Mutex
	written strings.Builder
	stopped bool
}

// endsLocked reports whether the engine stops: a stream that gets a slot meanwhile must not begin.
func (u *untilStop) endsLocked() bool {
	select {
	case <-u.stop:
		return true
	default:
		return u.stopped
	}
}

func (u *untilStop) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.endsLocked() {
		return 0, errors.New("the engine has stopped")
	}
	u.written.Write(b)
	return u.ResponseWriter.Write(b)
}

func (u *untilStop) WriteHeader(status int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.endsLocked() {
		u.ResponseWriter.WriteHeader(status)
	}
}

func (u *untilStop) FlushError() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.endsLocked() {
		return errors.New("the engine has stopped")
	}
	return http.NewResponseController(u.ResponseWriter).Flush()
}

func (u *untilStop) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = true
	head := `data: {"id":"c","object":"chat.completion.chunk","created":0,"model":"sim","choices":[`
	last := head + `{"index":0,"delta":{},"finish_reason":"abort"}]}`
	if u.written.Len() == 0 {
		u.Header().Set("Content-Type", "text/event-stream")
		last = head + `{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	}
	// the client may have disconnected
	_, _ = io.WriteString(u.ResponseWriter,
		last+"\n\n"+head+`],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`+"\n\ndata: [DONE]\n\n")
}

// TestRollingRestartCutsOnlyStreamsWithContent stops an engine with two streams in progress and
// two that wait for a slot. The streams in progress end with an error frame and count as
// truncated; the other engine serves the waiting ones.
func TestRollingRestartCutsOnlyStreamsWithContent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const slots = 2
		type held struct {
			*rig.Worker
			front   *restarting
			release chan struct{}
		}
		var all [2]*held
		var urls []string
		for i := range all {
			h := &held{release: make(chan struct{})}
			h.Worker = newEngine(t, fmt.Sprintf("w%d", i),
				engines.Config{Slots: slots, Script: func(string, []byte) engines.Script {
					return engines.Script{Text: answerText, HoldAfter: 3, Release: h.release}
				}})
			h.front = &restarting{h.Handler, make(chan struct{})}
			h.Front = h.front
			h.Listen()
			all[i], urls = h, append(urls, h.Server.URL)
		}
		r := newRig(t, 0, rig.Settings{"tiers": oneTier(urls...), "retry": "{ attempts: 2, budget: 1 }",
			"breaker": quickBreaker}, engines.Config{})
		first := all[0]
		replies := make(chan rig.Reply)
		for n := range int64(4 * slots) {
			req := r.Request(context.Background(), http.MethodPost, chat.path, prompt(n, true))
			go func() {
				got, err := r.try(req)
				if err != nil {
					t.Error(err)
				}
				replies <- got
			}()
		}
		rig.Eventually(t, func() error {
			for _, h := range all {
				if s := h.Engine.Stats(); s.Running != slots || s.Waiting != slots {
					return fmt.Errorf("%s runs %d requests, and %d wait", h.Name, s.Running, s.Waiting)
				}
			}
			return nil
		})
		// Once the gateway has counted a time to first token, that stream is in progress.
		rig.Eventually(t, func() error {
			m, err := r.Metrics()
			if err != nil {
				return err
			}
			if n := m.Sum("tierway_time_to_first_token_seconds_count"); n < 2*slots {
				return fmt.Errorf("%v streams have a first token", n)
			}
			return nil
		})
		close(first.front.stop)
		rig.Eventually(t, func() error {
			if s := all[1].Engine.Stats(); s.Running+s.Waiting != 3*slots {
				return fmt.Errorf("w1 has %d requests", s.Running+s.Waiting)
			}
			return nil
		})
		close(all[1].release)
		whole, cut := 0, 0
		for range 4 * slots {
			got := <-replies
			h := transcriptOfStream(got.Body)
			switch line := r.AccessLine(got.ID); {
			case got.Status == http.StatusOK && h.text == answerText && h.done == 1 && h.finished && len(h.errors) == 0 &&
				line["outcome"] == "ok":
				whole++
			case got.Status == http.StatusOK && h.text != "" && h.done == 0 && len(h.errors) == 1 && !h.finished &&
				line["outcome"] == "truncated":
				cut++
			default:
				t.Errorf("%d %v: %s", got.Status, line, got.Body)
			}
		}
		if whole != 3*slots || cut != slots {
			t.Errorf("%d streams are whole and %d end with an error", whole, cut)
		}
	})
}
