package queue

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
)

const (
	// short is how long a load lasts at least: what is compared needs so many
	// requests.
	short = 8 * time.Second

	// waitLong are keys of a queue in which no request's time is over.
	waitLong = `max_wait: { interactive: 10m, background: 10m, batch: 10m }`

	chatPath = "/v1/chat/completions"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// soak is how long a load lasts, and whether it has its full size.
func soak(t *testing.T) (d time.Duration, full bool) {
	t.Helper()
	d = rig.Soak(t, short)
	return d, d >= rig.FullSoak
}

// queueRig is a rig whose requests are chats.
type queueRig struct{ *rig.Rig }

// newRig starts n engines that listen.
func newRig(t *testing.T, n int, c engines.Config) *queueRig {
	t.Helper()
	r := unheardRig(t, n, c)
	r.Listen()
	return r
}

// unheardRig is newRig whose engines do not listen yet.
func unheardRig(t *testing.T, n int, c engines.Config) *queueRig {
	t.Helper()
	return &queueRig{rig.New(t, n, c, rig.Settings{
		"auth":  `{ required: false }`,
		"hosts": `[ gateway ]`,
		"store": `{ sql: "" }`,
		// The bounds of the tests are theirs alone.
		"saturation": `{ waiting: 0, kv_usage: 0 }`,
	})}
}

// chat is the body of a request for a chat whose only turn is text; more are
// further members in JSON.
func chat(text string, more ...string) string { return rig.Chat("sim", text, more...) }

// Bodies that are asked for often.
var (
	plain  = chat("hello")
	held   = chat(rig.HoldMark)
	stream = chat("hello", `"stream":true`)
)

// request makes a request that posts a body.
func (r *queueRig) request(ctx context.Context, path, body string, headers ...string) *http.Request {
	return r.Request(ctx, http.MethodPost, path, body, headers...)
}

// ask sends a request for a chat and reads its answer. It may be called on any
// goroutine.
func (r *queueRig) ask(ctx context.Context, body string, headers ...string) rig.Reply {
	return r.Send(r.request(ctx, chatPath, body, headers...))
}

// now is ask whose answer has to come.
func (r *queueRig) now(body string, headers ...string) rig.Reply {
	r.T.Helper()
	got := r.Post(chatPath, body, headers...)
	if got.Err != nil {
		r.T.Fatal(got.Err)
	}
	return got
}

// open sends a request for a stream and returns when its header is there.
func (r *queueRig) open(body string, headers ...string) *rig.Stream {
	r.T.Helper()
	return r.Open(r.request(r.T.Context(), chatPath, body, headers...))
}

// rest reads a stream to its end and returns everything.
func (r *queueRig) rest(s *rig.Stream) string {
	r.T.Helper()
	all, err := s.ReadRest()
	if err != nil {
		r.T.Errorf("the stream ended with %v: %s", err, all)
	}
	return all
}

// queued is how long the gateway says that the request waited.
func queued(a rig.Reply) time.Duration {
	v, err := strconv.ParseFloat(a.Header.Get("X-Queue-Ms"), 64)
	if err != nil {
		return -1
	}
	return time.Duration(v * float64(time.Millisecond))
}

// tokens are those that the engine reports of a whole answer.
func tokens(a rig.Reply) int {
	var answer struct {
		Usage struct {
			Total int `json:"total_tokens"`
		} `json:"usage"`
	}
	_ = json.Unmarshal([]byte(a.Body), &answer) // what is no answer has none
	return answer.Usage.Total
}

// promise is an answer that comes while the test goes on.
type promise struct {
	come  chan rig.Reply
	leave context.CancelFunc
}

// later asks for a chat without waiting for the answer.
func (r *queueRig) later(body string, headers ...string) *promise {
	ctx, cancel := context.WithCancel(r.T.Context())
	p := &promise{come: make(chan rig.Reply, 1), leave: cancel}
	r.T.Cleanup(cancel)
	go func() { p.come <- r.ask(ctx, body, headers...) }()
	return p
}

// crowd asks for n chats without waiting for the answers, one after the other as
// they get in line.
func (r *queueRig) crowd(n int, body string, headers ...string) []*promise {
	all := make([]*promise, n)
	for i := range all {
		all[i] = r.later(body, headers...)
	}
	return all
}

// answer waits for a promise.
func (r *queueRig) answer(p *promise) rig.Reply {
	r.T.Helper()
	select {
	case got := <-p.come:
		return got
	case <-time.After(rig.Patience):
		r.T.Fatalf("no answer within %v", rig.Patience)
		return rig.Reply{}
	}
}

// served waits for all promises, each of which has to be a whole answer.
func (r *queueRig) served(all []*promise) {
	r.T.Helper()
	for i, p := range all {
		if err := r.answer(p).CheckOK(); err != nil {
			r.T.Errorf("request %d of %d: %v", i, len(all), err)
		}
	}
}

// leave makes all promises' clients go away, and waits until they have.
func (r *queueRig) leave(all []*promise) {
	r.T.Helper()
	for _, p := range all {
		p.leave()
	}
	for _, p := range all {
		r.answer(p)
	}
}
