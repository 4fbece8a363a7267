package queue

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

const (
	// short is the minimum duration of a load: comparisons need enough requests.
	short = 8 * time.Second

	// waitLong is the setting of a queue in which no request expires.
	waitLong = `max_wait: { interactive: 10m, background: 10m, batch: 10m }`

	chatPath = "/v1/chat/completions"
)

func TestMain(m *testing.M) { os.Exit(bubble.Main(m)) }

// soak returns the duration of a load and whether it has its full size.
func soak(t *testing.T) (d time.Duration, full bool) {
	t.Helper()
	d = rig.Soak(t, short)
	return d, d >= rig.FullSoak
}

// queueRig is a rig that sends chats.
type queueRig struct{ *rig.Rig }

// newRig starts n engines.
func newRig(t *testing.T, n int, c engines.Config) *queueRig {
	t.Helper()
	r := newRigNotListening(t, n, c)
	r.Listen()
	return r
}

// newRigNotListening makes n engines that do not listen yet.
func newRigNotListening(t *testing.T, n int, c engines.Config) *queueRig {
	t.Helper()
	return &queueRig{rig.New(t, n, c, rig.Settings{
		"auth":  `{ required: false }`,
		"hosts": `[ gateway ]`,
		"store": `{ sql: "" }`,
		// The rules take a third of the time of a start, and the requests name their model.
		"classifier": `{ preset: none }`,
		// Only the bounds that a test sets must take effect.
		"saturation": `{ waiting: 0, kv_usage: 0 }`,
	})}
}

// chat returns the body of a chat request with one message and further members in JSON.
func chat(text string, members ...string) string { return rig.Chat("sim", text, members...) }

// Common request bodies.
var (
	plain  = chat("hello")
	held   = chat(rig.PauseMark)
	stream = chat("hello", `"stream":true`)
)

// request makes a POST request.
func (r *queueRig) request(ctx context.Context, path, body string, headers ...string) *http.Request {
	return r.Request(ctx, http.MethodPost, path, body, headers...)
}

// send posts a chat and reads the whole response. It may be called on any goroutine.
func (r *queueRig) send(ctx context.Context, body string, headers ...string) rig.Reply {
	return r.Send(r.request(ctx, chatPath, body, headers...))
}

// mustSend posts a chat and fails the test if no complete response comes.
func (r *queueRig) mustSend(body string, headers ...string) rig.Reply {
	r.T.Helper()
	got := r.Post(chatPath, body, headers...)
	if got.Err != nil {
		r.T.Fatal(got.Err)
	}
	return got
}

// open posts a chat and returns when the header of the response has arrived.
func (r *queueRig) open(body string, headers ...string) *rig.Stream {
	r.T.Helper()
	return r.Open(r.request(r.T.Context(), chatPath, body, headers...))
}

// readAll reads a stream to its end and returns the whole body.
func (r *queueRig) readAll(s *rig.Stream) string {
	r.T.Helper()
	all, err := s.ReadRest()
	if err != nil {
		r.T.Errorf("the stream ended with %v: %s", err, all)
	}
	return all
}

// queued returns the request's wait as the gateway reports it in X-Queue-Ms; -1 without one.
func queued(a rig.Reply) time.Duration {
	v, err := strconv.ParseFloat(a.Header.Get("X-Queue-Ms"), 64)
	if err != nil {
		return -1
	}
	return time.Duration(v * float64(time.Millisecond))
}

// tokens returns the total_tokens of an answer that is not a stream.
func tokens(a rig.Reply) int {
	var answer struct {
		Usage struct {
			Total int `json:"total_tokens"`
		} `json:"usage"`
	}
	_ = json.Unmarshal([]byte(a.Body), &answer) // an error has no tokens
	return answer.Usage.Total
}

// pending is a request that runs in the background.
type pending struct {
	replies    chan rig.Reply // has one element
	disconnect context.CancelFunc
}

// start posts a chat in the background.
func (r *queueRig) start(body string, headers ...string) *pending {
	ctx, cancel := context.WithCancel(r.T.Context())
	p := &pending{replies: make(chan rig.Reply, 1), disconnect: cancel}
	r.T.Cleanup(cancel)
	go func() { p.replies <- r.send(ctx, body, headers...) }()
	return p
}

// startMany posts n chats in the background.
func (r *queueRig) startMany(n int, body string, headers ...string) []*pending {
	all := make([]*pending, n)
	for i := range all {
		all[i] = r.start(body, headers...)
	}
	return all
}

// reply waits for the reply to a pending request.
func (r *queueRig) reply(p *pending) rig.Reply {
	r.T.Helper()
	select {
	case got := <-p.replies:
		return got
	case <-time.After(rig.Patience):
		r.T.Fatalf("no answer within %v", rig.Patience)
		return rig.Reply{}
	}
}

// checkServed waits for all replies and checks that each is a complete answer.
func (r *queueRig) checkServed(all []*pending) {
	r.T.Helper()
	for i, p := range all {
		if err := r.reply(p).CheckOK(); err != nil {
			r.T.Errorf("request %d of %d: %v", i, len(all), err)
		}
	}
}

// disconnect disconnects the clients of all requests and waits until they have ended.
func (r *queueRig) disconnect(all []*pending) {
	r.T.Helper()
	for _, p := range all {
		p.disconnect()
	}
	for _, p := range all {
		r.reply(p)
	}
}
