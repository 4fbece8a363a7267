package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// soakTime returns the duration of the soak, which must allow for at least three kills.
func soakTime(t *testing.T) time.Duration { t.Helper(); return rig.Soak(t, 3*time.Second) }

// totals counts the results of a soak's requests.
type totals struct {
	mu                    sync.Mutex
	whole, cut, cancelled int // streams: complete, ended by an error frame, cancelled by the client
	answers               int // answers that are not streams
	left, seen            map[string]time.Time
	failures              []string
	deaths, clients       int
}

// fail records a failure.
func (s *totals) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

func (s *totals) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

// TestSoakWithDyingWorkers runs 64 clients while workers are killed and restarted. No client
// hangs, cut streams end with an error frame, requests without content succeed on another worker,
// and afterwards no goroutine or request is left.
func TestSoakWithDyingWorkers(t *testing.T) {
	bubble.TestAlone(t, func(t *testing.T) {
		s := &totals{left: map[string]time.Time{}, seen: map[string]time.Time{}, clients: 64}
		r := newSoak(t, s)
		if got := r.post(chat.path, chat.body); got.Status != http.StatusOK {
			t.Fatalf("the first answer is %d: %s", got.Status, got.Body)
		}
		r.Client.CloseIdleConnections()
		before := r.Goroutines()

		ctx, stop := context.WithTimeout(context.Background(), soakTime(t))
		defer stop()
		var clients sync.WaitGroup
		for i := range s.clients {
			clients.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					r.sendOne(s, n)
				}
			})
		}
		r.killWorkers(ctx, s)
		clients.Wait()

		for _, f := range s.failures[:min(len(s.failures), 20)] {
			t.Error(f)
		}
		if s.whole == 0 || s.cut == 0 || s.cancelled == 0 || s.answers == 0 {
			t.Error("the soak does not have every kind of result")
		}
		r.Client.CloseIdleConnections()
		r.WaitUntilIdle()
		after := 0.0
		rig.Eventually(t, func() error {
			// The margin covers the scrape, timers and closing connections.
			if after = r.Goroutines(); after > before+10 {
				return fmt.Errorf("the gateway has %v goroutines, it had %v", after, before)
			}
			return nil
		})
		var took []time.Duration
		for id, at := range s.left {
			if seen, ok := s.seen[id]; ok {
				took = append(took, seen.Sub(at))
			}
		}
		report(t, fmt.Sprintf("%d streams whole, %d cut by %d deaths, %d left by their clients, %d answers, goroutines %v "+
			"→ %v; cancel to engine",
			s.whole, s.cut, s.deaths, s.cancelled, s.answers, before, after), took)
	})
}

// newSoak returns a rig of three workers. Their streams take most of a second; they record when a
// request is cancelled.
func newSoak(t *testing.T, s *totals) *chaosRig {
	t.Helper()
	script := func(_ string, body []byte) engines.Script {
		if bytes.Contains(body, []byte(`"stream":true`)) {
			return engines.Script{Text: soakText}
		}
		return engines.Script{Text: answerText[:20]}
	}
	var ws []*rig.Worker
	for i := range 3 {
		w := newEngine(t, fmt.Sprintf("w%d", i), engines.Config{Script: script, PerToken: 10 * time.Millisecond})
		front := http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			id := req.Header.Get("X-Request-Id")
			defer context.AfterFunc(req.Context(), func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.seen[id] = time.Now()
			})()
			w.ServeHTTP(rw, req)
		})
		w.Front = front
		w.Listen()
		ws = append(ws, w)
	}
	r := newRig(t, 0, rig.Settings{
		"tiers":  tiers(ws),
		"policy": "{ name: least_load }",
		"health": "{ path: auto, interval: 1s, timeout: 1s, down_after: 10, up_after: 1 }",
		"retry":  "{ attempts: 5, budget: 1 }",
		"queue":  beating,
	}, engines.Config{})
	r.Workers = ws
	r.Client.Transport.(*http.Transport).MaxIdleConnsPerHost = s.clients
	return r
}

// soakText is a stream of about 70 tokens.
const soakText = answerText + " " + answerText + " " + answerText + " " + answerText

// killWorkers kills and restarts random workers at random times until ctx ends. Before each kill
// it waits until the gateway finds all workers healthy.
func (r *chaosRig) killWorkers(ctx context.Context, s *totals) {
	r.T.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	below := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	for ctx.Err() == nil {
		rig.Eventually(r.T, func() error {
			if ctx.Err() != nil {
				return nil
			}
			m, err := r.Metrics()
			if err != nil {
				return err
			}
			if m.Sum("tierway_worker_up") != 3 || m.Sum("tierway_worker_backoff") != 0 || m.Sum("tierway_worker_breaker") != 0 {
				return errors.New("not all workers are back")
			}
			return nil
		})
		if !rig.Pause(ctx, below(300*time.Millisecond)) {
			return
		}
		w := r.Workers[random.IntN(len(r.Workers))]
		w.Stop()
		s.deaths++
		rig.Pause(ctx, below(200*time.Millisecond))
		w.Listen()
	}
}

// sendOne sends the n-th request of a client and counts its result. Each fifth one is no stream, and the client
// disconnects from a quarter of the streams.
func (r *chaosRig) sendOne(s *totals, n int) {
	if n%5 == 0 {
		got, err := r.try(r.Request(context.Background(), http.MethodPost, chat.path, chat.body))
		switch {
		case err != nil:
			s.fail("a whole answer: %v", err)
		case got.Status != http.StatusOK || !strings.Contains(got.Body, answerText[:20]):
			s.fail("a whole answer is %d (%v): %s", got.Status, got.Err, got.Body)
		default:
			s.count(&s.answers)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	d := []dialect{chat, completions, responses, messages}[n/4%4]
	req := r.Request(ctx, http.MethodPost, d.path, d.stream)
	resp, err := r.Client.Do(req)
	if err != nil {
		s.fail("a stream has not begun: %v", err)
		return
	}
	defer resp.Body.Close()
	if n%4 == 1 {
		r.cancelStream(s, req, resp, 1+n*997%(8<<10), cancel)
		return
	}
	body, err := io.ReadAll(resp.Body)
	h := transcriptOfStream(string(body))
	switch {
	case resp.StatusCode != http.StatusOK:
		s.fail("a stream that had not begun is %d: %s", resp.StatusCode, body)
	case err != nil:
		s.fail("a stream ended with %v after %q", err, body)
	case len(h.errors) == 0 && h.text == soakText && d.complete(h):
		s.count(&s.whole)
	case len(h.errors) == 1 && h.done == 0 && h.ends == 0 && h.text != "":
		s.count(&s.cut)
	default:
		s.fail("a %s stream ended as %+v after %d bytes: …%s", d.name, h, len(body), body[max(0, len(body)-300):])
	}
}

// cancelStream reads size bytes of a stream and disconnects.
func (r *chaosRig) cancelStream(s *totals, req *http.Request, resp *http.Response, size int,
	cancel context.CancelFunc) {
	part := make([]byte, size)
	_, err := io.ReadFull(resp.Body, part)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil { // otherwise the stream had already ended
		s.left[req.Header.Get("X-Request-Id")] = time.Now()
	}
	s.cancelled++
	cancel()
}
