package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

// hanging is an engine that falls silent after so many tokens.
func hanging(after int) engines.Config {
	return engines.Config{Script: func(string, []byte) engines.Script {
		return engines.Script{Text: answerText, HoldAfter: after}
	}}
}

// TestACancelReachesTheEngine: whoever waits for an answer and leaves frees the
// engine, before the first byte, in a stream, and of a whole answer.
func TestACancelReachesTheEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil, hanging(3))
	const rounds = 50
	var took []time.Duration
	var ids []string
	for i := range rounds {
		s := r.stream(chat.path, chat.stream)
		s.ReadUntil("content")
		before := time.Now()
		s.Cancel()
		r.seesCancels(int64(i + 1))
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
		t.Errorf("the cancels are not counted as nobody's fault (%v): %v", err, m)
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
		r.seesCancels(int64(rounds + i + 1))
		took = append(took, r.Workers[0].Engine.Stats().CancelledAt.Sub(before))
	}
	report(t, "cancel of a whole answer reaches the engine", took)
}

// seesCancels waits until the workers saw so many clients leave.
func (r *chaosRig) seesCancels(n int64) {
	r.T.Helper()
	rig.Eventually(r.T, func() error {
		if got := r.cancelled(); got != n {
			return fmt.Errorf("the workers saw %d clients leave, want %d", got, n)
		}
		return nil
	})
}

// report prints how long something took, to be read and not asserted.
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

// TestARequestThatItsClientResets takes its engine with it, as one that is closed.
func TestARequestThatItsClientResets(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil, hanging(2))
	for i, stream := range []bool{true, false} {
		c := r.dial()
		body := chat.ask(stream)
		c.send(head + fmt.Sprintf("X-Request-Id: reset-%d\r\nContent-Length: %d\r\n\r\n", i, len(body)) + body)
		rig.Eventually(t, func() error {
			if r.Workers[0].Engine.Stats().Running != 1 {
				return errors.New("the engine has not begun")
			}
			return nil
		})
		if err := c.Conn.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		c.Close()
		r.seesCancels(int64(i + 1))
		if line := r.AccessLine(fmt.Sprintf("reset-%d", i)); line["outcome"] != "client_gone" ||
			!stream && line["status"] != 499.0 {
			t.Errorf("the log says %v", line)
		}
	}
}

// beating opens streams early.
const beating = `{ heartbeat_after: 50ms }`

// TestHeartbeats: comments in every pause, which no
// client takes for events, and the answer is whole between them.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect{chat, responses, messages} {
		release := make(chan struct{})
		r := newRig(t, 1, rig.Settings{"queue": beating}, engines.Config{Script: func(string, []byte) engines.Script {
			return engines.Script{Text: answerText, HoldAfter: 4, Release: release}
		}})
		s := r.stream(d.path, d.stream)
		if s.Resp.StatusCode != http.StatusOK || s.Resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: the answer opened as %d %v", d.name, s.Resp.StatusCode, s.Resp.Header)
		}
		s.ReadUntil(": keep-alive\n\n: keep-alive\n\n")
		close(release)
		body, err := s.ReadRest()
		if err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
		if h := heard(body); h.text != answerText || !d.proven(h) || len(h.errors) > 0 {
			t.Errorf("%s: the client heard %+v of %s", d.name, h, body)
		}
	}
}

// TestNoHeartbeatsInWholeAnswers: JSON has no place for comments.
func TestNoHeartbeatsInWholeAnswers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := newRig(t, 1, rig.Settings{"queue": beating}, engines.Config{Script: func(string, []byte) engines.Script {
		return engines.Script{Text: answerText, HoldAfter: 1, Release: release}
	}})
	other := make(chan rig.Reply, 1)
	go func() {
		got, err := r.try(r.Request(context.Background(), http.MethodPost, chat.path, chat.body))
		if err != nil {
			t.Error(err)
		}
		other <- got
	}()
	s := r.stream(chat.path, chat.stream) // its heartbeats tell that the time has come
	s.ReadUntil(": keep-alive\n\n: keep-alive\n\n: keep-alive\n\n")
	close(release)
	if _, err := s.ReadRest(); err != nil {
		t.Error(err)
	}
	if got := <-other; got.Status != http.StatusOK || strings.Contains(got.Body, "keep-alive") ||
		got.Header.Get("Content-Length") == "" {
		t.Errorf("the whole answer is %d %v %s", got.Status, got.Header, got.Body)
	}
}

// TestAnOpenStreamMayStillMove: after heartbeats and before content, a worker that
// fails is replaced and the client never knows.
func TestAnOpenStreamMayStillMove(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect{chat, completions, responses, messages} {
		r, gates := newGatedRig(t, 2, rig.Settings{"queue": beating})
		s := r.stream(d.path, d.stream)
		s.ReadUntil(": keep-alive\n\n")
		gates[0].release(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		s.ReadUntil(": keep-alive\n\n: keep-alive\n\n") // the second waits too
		gates[1].release(gates[1].next.ServeHTTP)
		body, err := s.ReadRest()
		if h := heard(body); err != nil || h.text != answerText || !d.proven(h) || len(h.errors) > 0 {
			t.Errorf("%s: the client heard %+v (%v) of %s", d.name, h, err, body)
		}
		if line := r.AccessLine(s.ID); line["attempts"] != 2.0 || line["outcome"] != "ok" || line["worker"] != "w1" ||
			line["status"] != 200.0 {
			t.Errorf("%s: the log says %v", d.name, line)
		}
	}
}

// TestAnOpenStreamFailsByAFrame: once a heartbeat was sent there is no status any
// more, but there is one error frame and no clean end.
func TestAnOpenStreamFailsByAFrame(t *testing.T) {
	t.Parallel()
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
			s.ReadUntil(": keep-alive\n\n")
			gates[0].release(refused(code))
			attempts := 1.0
			if code != 400 {
				gates[1].release(refused(code))
				attempts = 2
			}
			body, err := s.ReadRest()
			if h := heard(body); err != nil || len(h.errors) != 1 || h.done > 0 || h.ends > 0 || h.text != "" {
				t.Errorf("%s %d: the client heard %+v (%v) of %s", d.name, code, h, err, body)
			}
			if line := r.AccessLine(s.ID); line["attempts"] != attempts || line["outcome"] != outcome {
				t.Errorf("%s %d: the log says %v", d.name, code, line)
			}
		}
	}
}

// TestASlowReaderIsCut: a client that takes nothing is cut after client_stall,
// and its engine is free.
func TestASlowReaderIsCut(t *testing.T) {
	t.Parallel()
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
}

// TestTheClientsOwnTimeoutEndsTheWork: an SDK says how long it waits, and nobody
// works on an answer that comes later.
func TestTheClientsOwnTimeoutEndsTheWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil, engines.Config{})
	if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Hang}); err != nil {
		t.Fatal(err)
	}
	got := r.post(chat.path, chat.body, "X-Stainless-Timeout", "0.5")
	refuses(t, "a whole answer", got, http.StatusGatewayTimeout, "worker_timeout")
	got = r.post(chat.path, chat.stream, "X-Stainless-Timeout", "0.5")
	refuses(t, "a stream's first event", got, http.StatusGatewayTimeout, "worker_timeout")
	r.seesCancels(2)
	if m, err := r.Metrics(); err != nil || m.Sum("tierway_attempts_total", `result="excluded"`) != 2 {
		t.Errorf("the worker is blamed (%v)", err)
	}
}
