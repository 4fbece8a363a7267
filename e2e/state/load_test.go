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

// The requests of a load: one without and one with streaming.
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

// ask posts chatBody with rig.TenantKey. The test fails if no complete response comes.
func (r *stateRig) ask(base string) rig.Reply {
	r.T.Helper()
	got, err := r.post(context.Background(), base, chatPath, rig.TenantKey, chatBody)
	if err != nil {
		r.T.Fatal(err)
	}
	return got
}

// load is a group of clients that send requests until stop, with the results.
type load struct {
	r    *stateRig
	base func() string // of the next request
	key  string
	// tolerant: replies that are not a complete 200 go to broken and do not fail the test.
	tolerant bool

	stop context.CancelFunc
	done context.Context //nolint:containedctx // of all requests of the load
	work sync.WaitGroup

	mu       sync.Mutex  // guards the fields below
	whole    []rig.Reply // replies with 200, without their bodies
	others   map[int]int // other replies, by status
	streams  int
	failures []string
	broken   []rig.Reply
}

// newLoad returns a load without clients. Its requests go to the gateways in turn.
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

// fail records a failure.
func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// tolerate adds a reply to broken and returns true if it failed and the load is tolerant.
func (l *load) tolerate(got rig.Reply, whole bool) bool {
	if !l.tolerant || got.Err == nil && got.Status == http.StatusOK && whole {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = append(l.broken, got)
	return true
}

// thinkTime is the pause of a client between two chats. It keeps the load of a few clients from filling the machine.
const thinkTime = 50 * time.Millisecond

// startChats starts clients that each send one chat after the other, at most 20 per second.
func (l *load) startChats(clients int) {
	for range clients {
		l.work.Go(func() {
			for l.done.Err() == nil {
				l.sendChat()
				rig.Pause(l.done, thinkTime)
			}
		})
	}
}

// sendChat sends one chat without streaming and checks its answer.
func (l *load) sendChat() {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	got, err := l.r.post(ctx, l.base(), chatPath, l.key, chatBody)
	switch {
	case l.tolerate(got, strings.Contains(got.Body, rig.AnswerText)):
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
			l.fail("the first reply with status %d: %s", got.Status, got.Body)
		}
	}
}

// startStreams starts clients that each read one stream after the other.
func (l *load) startStreams(clients int) {
	for range clients {
		l.work.Go(func() {
			for l.done.Err() == nil {
				l.readStream()
			}
		})
	}
}

// readStream reads one stream and checks it.
func (l *load) readStream() {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	got, err := l.r.post(ctx, l.base(), chatPath, l.key, chatStream)
	switch text, ended := parseStream(got.Body); {
	case l.tolerate(got, text == streamText && ended):
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

// parseStream returns the text of a chat stream and whether it ends with [DONE].
func parseStream(stream string) (text string, ended bool) {
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

// waitForMore waits until the clients have got n more whole answers, and returns how many more they have.
func (l *load) waitForMore(n int) int {
	l.r.T.Helper()
	whole := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.whole) + l.streams
	}
	before := whole()
	rig.Eventually(l.r.T, func() error {
		if got := whole() - before; got < n {
			return errorf("the clients have got %d more whole answers, want %d", got, n)
		}
		return nil
	})
	return whole() - before
}

// end stops the clients, waits for the requests in flight, and fails the test for each reply that is
// not a complete 200.
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

// count returns the number of replies of every kind. Call it after end.
func (l *load) count() int {
	n := len(l.whole) + l.streams
	for _, m := range l.others {
		n += m
	}
	return n
}

// times returns the durations of the chats that were sent in [from, to).
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

// times are sorted durations.
type times []time.Duration

// at returns the quantile of a share.
func (t times) at(share float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[min(int(share*float64(len(t))), len(t)-1)]
}

// String returns the number and the quantiles.
func (t times) String() string {
	return fmt.Sprintf("%d answers, p50 %v, p99 %v, max %v", len(t), t.at(0.5).Round(100*time.Microsecond),
		t.at(0.99).Round(100*time.Microsecond), t.at(1).Round(100*time.Microsecond))
}
