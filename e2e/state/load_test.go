package state

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"tierway/e2e/rig"
)

// The questions of a load: a whole answer and a stream.
const (
	chatPath   = "/chat/completions"
	chatBody   = `{"model":"sim","max_tokens":64,"messages":[{"role":"user","content":"Say something about foxes."}]}`
	chatStream = `{"model":"sim","max_tokens":64,"stream":true,"messages":[{"role":"user","content":"Say something about foxes."}]}`
)

// post sends a request to a gateway's base URL. It may be called on any goroutine.
func (r *stateRig) post(ctx context.Context, base, path, key, body string) (rig.Reply, error) {
	got := r.Send(r.RequestTo(ctx, http.MethodPost, base+path, body, "Authorization", "Bearer "+key))
	return got, got.Err
}

// ask is post of a test's one question, with tenantKey.
func (r *stateRig) ask(base string) rig.Reply {
	r.T.Helper()
	got, err := r.post(context.Background(), base, chatPath, rig.TenantKey, chatBody)
	if err != nil {
		r.T.Fatal(err)
	}
	return got
}

// load is clients that ask until they are told to stop, and what they got.
type load struct {
	r    *stateRig
	base func() string // of the next request
	key  string

	stop context.CancelFunc
	done context.Context //nolint:containedctx // of all requests of the load
	work sync.WaitGroup

	mu       sync.Mutex  // guards all below
	whole    []rig.Reply // answers with 200, without their bodies
	others   map[int]int
	streams  int
	failures []string
}

// newLoad is a load of nobody yet, on gateways in turn.
func (r *stateRig) newLoad(key string, bases ...string) *load {
	l := &load{r: r, key: key, others: map[int]int{}}
	l.done, l.stop = context.WithCancel(context.Background())
	var mu sync.Mutex
	turn := 0
	l.base = func() string {
		mu.Lock()
		defer mu.Unlock()
		turn++
		return bases[turn%len(bases)]
	}
	r.T.Cleanup(l.stop)
	return l
}

// fail notes what must not happen.
func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// answers begins to ask for whole answers, so many a second, whether or not those
// before have been answered.
func (l *load) answers(perSecond int) {
	l.work.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.work.Go(l.one)
			case <-l.done.Done():
				return
			}
		}
	})
}

// one asks for one whole answer.
func (l *load) one() {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	got, err := l.r.post(ctx, l.base(), chatPath, l.key, chatBody)
	switch {
	case err != nil:
		l.fail("a whole answer: %v (status %d)", err, got.Status)
	case got.Status == http.StatusOK && !strings.Contains(got.Body, rig.AnswerText):
		l.fail("a whole answer is %s", got.Body)
	case got.Status == http.StatusOK:
		l.mu.Lock()
		got.Body = ""
		l.whole = append(l.whole, got)
		l.mu.Unlock()
	default:
		l.mu.Lock()
		l.others[got.Status]++
		first := l.others[got.Status] == 1
		l.mu.Unlock()
		if first {
			l.fail("the first answer that is %d: %s", got.Status, got.Body)
		}
	}
}

// open begins to keep so many streams open: each client reads one to its end and
// asks for another.
func (l *load) open(clients int) {
	for range clients {
		l.work.Go(func() {
			for l.done.Err() == nil {
				l.stream()
			}
		})
	}
}

// stream asks for one stream.
func (l *load) stream() {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	got, err := l.r.post(ctx, l.base(), chatPath, l.key, chatStream)
	switch text, ended := heard(got.Body); {
	case err != nil:
		l.fail("a stream: %v (status %d, %d bytes)", err, got.Status, len(got.Body))
	case got.Status != http.StatusOK:
		l.fail("a stream is %d: %s", got.Status, got.Body)
	case text != streamText || !ended:
		l.fail("a stream was cut after %q: …%s", text, got.Body[max(0, len(got.Body)-300):])
	default:
		l.mu.Lock()
		l.streams++
		l.mu.Unlock()
	}
}

// heard returns the text of a chat stream, and whether its end is proven.
func heard(stream string) (text string, ended bool) {
	var b strings.Builder
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			ended = true
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
			Error any `json:"error"`
		}
		if json.Unmarshal([]byte(data), &chunk) != nil || chunk.Error != nil {
			return b.String(), false
		}
		for _, c := range chunk.Choices {
			b.WriteString(c.Delta.Content)
		}
	}
	return b.String(), ended
}

// end stops the clients, waits for what is under way, and fails the test for each
// answer that is not 200 and whole.
func (l *load) end() {
	l.r.T.Helper()
	l.stop()
	l.work.Wait()
	for _, f := range l.failures[:min(len(l.failures), 20)] {
		l.r.T.Error(f)
	}
	for status, n := range l.others {
		l.r.T.Errorf("%d answers are %d", n, status)
	}
	if n := len(l.failures); n > 20 {
		l.r.T.Errorf("and %d failures more", n-20)
	}
}

// asked is how many answers came, of every kind. Call it after end.
func (l *load) asked() int {
	n := len(l.whole) + l.streams
	for _, m := range l.others {
		n += m
	}
	return n
}

// times is how long the answers took that were asked for in [from, to).
func (l *load) times(from, to time.Time) times {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all times
	for _, a := range l.whole {
		if !a.Sent.Before(from) && a.Sent.Before(to) {
			all = append(all, a.Duration())
		}
	}
	slices.Sort(all)
	return all
}

// times are durations in their order.
type times []time.Duration

// at is the duration that a share of all are not above.
func (t times) at(share float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[min(int(share*float64(len(t))), len(t)-1)]
}

// String prints what a report needs.
func (t times) String() string {
	return fmt.Sprintf("%d answers, p50 %v, p99 %v, max %v", len(t), t.at(0.5).Round(100*time.Microsecond),
		t.at(0.99).Round(100*time.Microsecond), t.at(1).Round(100*time.Microsecond))
}
