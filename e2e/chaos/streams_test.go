package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

// hanging returns an engine that sends nothing more after a number of tokens.
func hanging(after int) engines.Config {
	return engines.Config{Script: func(string, []byte) engines.Script {
		return engines.Script{Text: answerText, HoldAfter: after}
	}}
}

// TestCancelReachesTheEngine: a client that disconnects frees the engine, during a stream and
// before an answer that is not a stream.
func TestCancelReachesTheEngine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, hanging(3))
		const rounds = 50
		var took []time.Duration
		var ids []string
		for i := range rounds {
			s := r.stream(chat.path, chat.stream)
			s.ReadUntil("content")
			before := time.Now()
			s.Cancel()
			r.waitForCancels(int64(i + 1))
			took = append(took, r.Workers[0].Engine.Stats().CancelledAt.Sub(before))
			ids = append(ids, s.ID)
		}
		for _, id := range ids {
			if line := r.AccessLine(id); line["outcome"] != "client_gone" {
				t.Errorf("the log says %v", line)
			}
		}
		report(t, "cancel of a stream reaches the engine", took)
		if m, err := r.Metrics(); err != nil || m.Sum("tierway_stream_end_total", `reason="client_gone"`) != rounds ||
			m.Sum("tierway_attempts_total", `result="excluded"`) != rounds {
			t.Errorf("the cancels are not counted as excluded attempts (%v): %v", err, m)
		}

		took = nil
		for i := range rounds {
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				resp, err := r.Client.Do(r.Request(ctx, http.MethodPost, chat.path, chat.body))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				ended <- err
			}()
			rig.Eventually(t, func() error {
				if r.Workers[0].Engine.Stats().Running != 1 {
					return errors.New("the engine has not begun")
				}
				return nil
			})
			before := time.Now()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatalf("the client ended with %v", err)
			}
			r.waitForCancels(int64(rounds + i + 1))
			took = append(took, r.Workers[0].Engine.Stats().CancelledAt.Sub(before))
		}
		report(t, "cancel of a whole answer reaches the engine", took)
	})
}

// waitForCancels waits until n requests are cancelled at the workers.
func (r *chaosRig) waitForCancels(n int64) {
	r.T.Helper()
	rig.Eventually(r.T, func() error {
		if got := r.cancelled(); got != n {
			return fmt.Errorf("%d requests are cancelled at the workers, want %d", got, n)
		}
		return nil
	})
}

// report logs quantiles of durations, without checking them.
func report(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	if len(took) == 0 {
		t.Errorf("%s: nothing was measured", what)
		return
	}
	slices.Sort(took)
	t.Logf("%s: p50 %v p99 %v of %d", what, took[len(took)/2].Round(time.Microsecond),
		took[len(took)*99/100].Round(time.Microsecond), len(took))
}

// TestResetReachesTheEngine: a connection reset by the client cancels the request like a close.
func TestResetReachesTheEngine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, hanging(2))
		for i, stream := range []bool{true, false} {
			c := r.dial()
			body := chat.requestBody(stream)
			c.send(head + fmt.Sprintf("X-Request-Id: reset-%d\r\nContent-Length: %d\r\n\r\n", i, len(body)) + body)
			rig.Eventually(t, func() error {
				if r.Workers[0].Engine.Stats().Running != 1 {
					return errors.New("the engine has not begun")
				}
				return nil
			})
			if err := c.Conn.(rig.Resettable).SetLinger(0); err != nil {
				t.Fatal(err)
			}
			c.Close()
			r.waitForCancels(int64(i + 1))
			if line := r.AccessLine(fmt.Sprintf("reset-%d", i)); line["outcome"] != "client_gone" ||
				!stream && line["status"] != 499.0 {
				t.Errorf("the log says %v", line)
			}
		}
	})
}

// beating makes the gateway open streams early and send heartbeats.
const beating = `{ heartbeat_after: 50ms }`

// TestStreamWithHeartbeatsOnlyIsRetried: if a worker fails after heartbeats and before content,
// another worker serves the stream, and the client does not notice.
func TestStreamWithHeartbeatsOnlyIsRetried(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, d := range []dialect{chat, completions, responses, messages} {
			r, gates := newGatedRig(t, 2, rig.Settings{"queue": beating})
			s := r.stream(d.path, d.stream)
			s.ReadUntil(": keep-alive\n")
			if s.Resp.StatusCode != http.StatusOK || s.Resp.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("%s: the answer opened as %d %v", d.name, s.Resp.StatusCode, s.Resp.Header)
			}
			gates[0].release(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			s.ReadUntil(": keep-alive\n: keep-alive\n") // heartbeats continue for the second attempt
			gates[1].release(gates[1].next.ServeHTTP)
			body, err := s.ReadRest()
			if h := transcriptOfStream(body); err != nil || h.text != answerText || !d.complete(h) || len(h.errors) > 0 {
				t.Errorf("%s: the client heard %+v (%v) of %s", d.name, h, err, body)
			}
			if line := r.AccessLine(s.ID); line["attempts"] != 2.0 || line["outcome"] != "ok" || line["worker"] != "w1" ||
				line["status"] != 200.0 {
				t.Errorf("%s: the log says %v", d.name, line)
			}
		}
	})
}

// TestFailureAfterHeartbeatsIsAnErrorFrame: after a heartbeat the status is already sent, so a
// failed stream ends with one error frame and without a proper end. Nothing of a heartbeat belongs to
// the frame.
func TestFailureAfterHeartbeatsIsAnErrorFrame(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		refused := func(code int) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				_, _ = io.WriteString(w,
					`{"error":{"message":"the engine says no","type":"invalid_request_error","param":null,"code":null}}`)
			}
		}
		for _, d := range []dialect{chat, completions, responses, messages} {
			for code, outcome := range map[int]string{500: "failed", 400: "refused", 429: "refused", 401: "failed"} {
				r, gates := newGatedRig(t, 2, rig.Settings{"queue": beating})
				s := r.stream(d.path, d.stream)
				s.ReadUntil(": keep-alive\n")
				gates[0].release(refused(code))
				attempts := 1.0
				if code != 400 {
					gates[1].release(refused(code))
					attempts = 2
				}
				body, err := s.ReadRest()
				if h := transcriptOfStream(body); err != nil || len(h.errors) != 1 || h.done > 0 || h.ends > 0 || h.text != "" {
					t.Errorf("%s %d: the client heard %+v (%v) of %s", d.name, code, h, err, body)
				}
				frame := strings.ReplaceAll(body, ": keep-alive\n", "")
				if !strings.HasPrefix(frame, "data: {") && !strings.HasPrefix(frame, "event: error\ndata: {") ||
					strings.Contains(frame, "\n\n\n") {
					t.Errorf("%s %d: the heartbeats are followed by %q", d.name, code, frame)
				}
				if line := r.AccessLine(s.ID); line["attempts"] != attempts || line["outcome"] != outcome {
					t.Errorf("%s %d: the log says %v", d.name, code, line)
				}
			}
		}
	})
}

// TestStalledReaderIsDisconnected: a client that reads nothing is disconnected after client_stall,
// which frees its engine.
func TestStalledReaderIsDisconnected(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, rig.Settings{"timeouts": `{ client_stall: 500ms, idle: 30s }`}, engines.Config{})
		for i, d := range []dialect{chat, completions} {
			if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Endless}); err != nil {
				t.Fatal(err)
			}
			c := r.dial()
			id := fmt.Sprintf("stalled-%d", i)
			c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nX-Request-Id: "+
				"%s\r\nContent-Length: %d\r\n\r\n%s", d.path, id, len(d.stream), d.stream))
			if line := r.AccessLine(id); line["outcome"] != "client_gone" {
				t.Errorf("%s: the log says %v", d.name, line)
			}
			rig.Eventually(t, func() error {
				if n := r.Workers[0].Stats().Open; n != 0 {
					return fmt.Errorf("the engine still writes %d answers", n)
				}
				return nil
			})
		}
	})
}

// TestClientTimeoutCancelsTheRequest: the gateway cancels a request when the timeout that the SDK
// announces has passed.
func TestClientTimeoutCancelsTheRequest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, engines.Config{})
		if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Hang}); err != nil {
			t.Fatal(err)
		}
		got := r.post(chat.path, chat.body, "X-Stainless-Timeout", "0.5")
		checkError(t, "a whole answer", got, http.StatusGatewayTimeout, "worker_timeout")
		got = r.post(chat.path, chat.stream, "X-Stainless-Timeout", "0.5")
		checkError(t, "a stream's first event", got, http.StatusGatewayTimeout, "worker_timeout")
		r.waitForCancels(2)
		if m, err := r.Metrics(); err != nil || m.Sum("tierway_attempts_total", `result="excluded"`) != 2 {
			t.Errorf("the worker is blamed (%v)", err)
		}
	})
}
