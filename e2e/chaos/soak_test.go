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

	"tierway/e2e/rig"
	"tierway/engines"
)

// soakTime is how long the soak lasts: at least the time of three deaths.
func soakTime(t *testing.T) time.Duration { t.Helper(); return rig.Soak(t, 3*time.Second) }

// totals is what came of a soak's requests.
type totals struct {
	mu                    sync.Mutex
	whole, cut, cancelled int // streams: with their proven end, with an error frame, left by their client
	answers               int // answers that are no streams
	left, seen            map[string]time.Time
	failures              []string
	deaths, clients       int
}

// fail notes what must not happen.
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

// TestSoakWithDyingWorkers: 64 clients at once while workers die and come back.
// Nobody hangs, what was cut says so, what had not begun goes well elsewhere, and
// afterwards everything is as it was.
func TestSoakWithDyingWorkers(t *testing.T) {
	s := &totals{left: map[string]time.Time{}, seen: map[string]time.Time{}, clients: 64}
	r := newSoak(t, s)
	if got := r.post(chat.path, chat.body); got.Status != http.StatusOK {
		t.Fatalf("the first answer is %d: %s", got.Status, got.Body)
	}
	r.Client.CloseIdleConnections()
	before := r.goroutines()

	ctx, stop := context.WithTimeout(context.Background(), soakTime(t))
	defer stop()
	var clients sync.WaitGroup
	for i := range s.clients {
		dice := rand.New(rand.NewPCG(uint64(i), 1))
		clients.Go(func() {
			for ctx.Err() == nil {
				r.once(s, dice)
			}
		})
	}
	r.haunt(ctx, s)
	clients.Wait()

	for _, f := range s.failures[:min(len(s.failures), 20)] {
		t.Error(f)
	}
	if s.whole == 0 || s.cut == 0 || s.cancelled == 0 || s.answers == 0 {
		t.Error("the soak has not met everything")
	}
	r.Client.CloseIdleConnections()
	r.WaitUntilQuiet()
	after := 0.0
	rig.Eventually(t, func() error {
		// A few are the scrape's own and those of timers and connections about to end.
		if after = r.goroutines(); after > before+10 {
			return fmt.Errorf("there are %v goroutines, before there were %v", after, before)
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
}

// newSoak is a rig of three workers whose streams take most of a second, which
// note when a request of theirs is cancelled.
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
		"health": "{ path: auto, interval: 1s, timeout: 1s, down_after: 1, up_after: 1 }",
		"retry":  "{ attempts: 5, budget: 1 }",
		"queue":  beating,
	}, engines.Config{})
	r.Workers = ws
	r.Client.Transport.(*http.Transport).MaxIdleConnsPerHost = s.clients
	return r
}

// soakText is a stream of some 70 tokens.
const soakText = answerText + " " + answerText + " " + answerText + " " + answerText

// goroutines is how many the gateway has.
func (r *chaosRig) goroutines() (n float64) {
	r.T.Helper()
	rig.Eventually(r.T, func() error {
		m, err := r.Metrics()
		n = m.Sum("go_goroutines")
		return err
	})
	return n
}

// haunt kills one worker after the other until ctx ends, each at a moment of
// chance when the gateway has found all of them well, and starts it again.
func (r *chaosRig) haunt(ctx context.Context, s *totals) {
	r.T.Helper()
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
		if !rig.Pause(ctx, rand.N(300*time.Millisecond)) {
			return
		}
		w := r.Workers[rand.IntN(len(r.Workers))]
		w.Stop()
		s.deaths++
		rig.Pause(ctx, rand.N(200*time.Millisecond)) // so long it is dead
		w.Listen()
	}
}

// once is one request of one client.
func (r *chaosRig) once(s *totals, dice *rand.Rand) {
	if dice.IntN(5) == 0 {
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
	d := []dialect{chat, completions, responses, messages}[dice.IntN(4)]
	req := r.Request(ctx, http.MethodPost, d.path, d.stream)
	resp, err := r.Client.Do(req)
	if err != nil {
		s.fail("a stream has not begun: %v", err)
		return
	}
	defer resp.Body.Close()
	if dice.IntN(4) == 0 {
		r.leave(s, req, resp, dice, cancel)
		return
	}
	body, err := io.ReadAll(resp.Body)
	h := heard(string(body))
	switch {
	case resp.StatusCode != http.StatusOK:
		s.fail("a stream that had not begun is %d: %s", resp.StatusCode, body)
	case err != nil:
		s.fail("a stream ended with %v after %q", err, body)
	case len(h.errors) == 0 && h.text == soakText && d.proven(h):
		s.count(&s.whole)
	case len(h.errors) == 1 && h.done == 0 && h.ends == 0 && h.text != "":
		s.count(&s.cut)
	default:
		s.fail("a %s stream ended as %+v after %d bytes: …%s", d.name, h, len(body), body[max(0, len(body)-300):])
	}
}

// leave reads a part of a stream and goes.
func (r *chaosRig) leave(s *totals, req *http.Request, resp *http.Response, dice *rand.Rand,
	cancel context.CancelFunc) {
	part := make([]byte, 1+dice.IntN(8<<10))
	_, err := io.ReadFull(resp.Body, part)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil { // else it had ended, whole or cut
		s.left[req.Header.Get("X-Request-Id")] = time.Now()
	}
	s.cancelled++
	cancel()
}
