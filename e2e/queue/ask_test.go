package queue

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// chat is the body of a request for a chat whose only turn is text; more are
// further members in JSON.
func chat(text string, more ...string) string {
	quoted, _ := json.Marshal(text) // a string always has an encoding
	members := append([]string{`"model":"sim"`, `"messages":[{"role":"user","content":` + string(quoted) + `}]`}, more...)
	return "{" + strings.Join(members, ",") + "}"
}

// Bodies that are asked for often.
var (
	plain  = chat("hello")
	held   = chat(holding)
	stream = chat("hello", `"stream":true`)
)

// reply is an answer that was read as far as it came.
type reply struct {
	id         string // the request's
	status     int
	header     http.Header
	body       string
	sent, done time.Time
	err        error // of asking, or of reading
}

// request makes a request with an id of its own, a UUID, which engines get too;
// headers are name and value in turn.
func (r *rig) request(ctx context.Context, path, body string, headers ...string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.scheme+r.data+path, strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return nil
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", fmt.Sprintf("00000000-0000-4000-8000-%012x", r.ids.Add(1)))
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// ask sends a request for a chat and reads its answer. It may be called on any
// goroutine.
func (r *rig) ask(ctx context.Context, body string, headers ...string) reply {
	return r.send(r.request(ctx, "/v1/chat/completions", body, headers...))
}

// now is ask for who waits for the answer: the test fails without one.
func (r *rig) now(body string, headers ...string) reply {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	got := r.ask(ctx, body, headers...)
	if got.err != nil {
		r.t.Fatal(got.err)
	}
	return got
}

// send sends a request and reads its answer.
func (r *rig) send(req *http.Request) reply {
	got := reply{id: req.Header.Get("X-Request-Id"), sent: time.Now()}
	resp, err := r.client.Do(req)
	if err != nil {
		got.err, got.done = err, time.Now()
		return got
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got.status, got.header, got.body, got.err, got.done = resp.StatusCode, resp.Header, string(body), err, time.Now()
	return got
}

// took is from the request's first byte to the answer's last.
func (a reply) took() time.Duration { return a.done.Sub(a.sent) }

// queued is how long the gateway says that the request waited.
func (a reply) queued() time.Duration {
	v, err := strconv.ParseFloat(a.header.Get("X-Queue-Ms"), 64)
	if err != nil {
		return -1
	}
	return time.Duration(v * float64(time.Millisecond))
}

// tokens are those that the engine reports of a whole answer.
func (a reply) tokens() int {
	var answer struct {
		Usage struct {
			Total int `json:"total_tokens"`
		} `json:"usage"`
	}
	_ = json.Unmarshal([]byte(a.body), &answer) // what is no answer has none
	return answer.Usage.Total
}

// code is the code of an error in OpenAI's shape.
func (a reply) code() string {
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal([]byte(a.body), &e) // what is no error has none
	return e.Error.Code
}

// fails says what is wrong with an answer that ought to be whole.
func (a reply) fails() error {
	if a.err != nil {
		return a.err
	}
	if a.status != http.StatusOK || !strings.Contains(a.body, `"choices"`) {
		return fmt.Errorf("the answer is %d: %s", a.status, a.body)
	}
	return nil
}

// refusal says what is wrong with an answer that ought to be an error with that
// status and code, after which a client may come back.
func (a reply) refusal(status int, code string) error {
	switch {
	case a.err != nil:
		return a.err
	case a.status != status || a.code() != code:
		return fmt.Errorf("the answer is %d, want %d %s: %s", a.status, status, code, a.body)
	}
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		return fmt.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
	ms, err := strconv.Atoi(a.header.Get("Retry-After-Ms"))
	if err != nil || ms < 1 || ms > 1000*seconds {
		return fmt.Errorf("retry-after-ms is %q beside Retry-After %d", a.header.Get("Retry-After-Ms"), seconds)
	}
	return nil
}

// promise is an answer that comes while the test goes on.
type promise struct {
	come  chan reply
	leave context.CancelFunc
}

// later asks for a chat without waiting for the answer.
func (r *rig) later(body string, headers ...string) *promise {
	ctx, cancel := context.WithCancel(r.t.Context())
	p := &promise{come: make(chan reply, 1), leave: cancel}
	r.t.Cleanup(cancel)
	go func() { p.come <- r.ask(ctx, body, headers...) }()
	return p
}

// crowd asks for n chats without waiting for the answers, one after the other as
// they get in line.
func (r *rig) crowd(n int, body string, headers ...string) []*promise {
	all := make([]*promise, n)
	for i := range all {
		all[i] = r.later(body, headers...)
	}
	return all
}

// answer waits for a promise.
func (r *rig) answer(p *promise) reply {
	r.t.Helper()
	select {
	case got := <-p.come:
		return got
	case <-time.After(patience):
		r.t.Fatalf("no answer within %v", patience)
		return reply{}
	}
}

// served waits for all promises, each of which has to be a whole answer.
func (r *rig) served(all []*promise) {
	r.t.Helper()
	for i, p := range all {
		if err := r.answer(p).fails(); err != nil {
			r.t.Errorf("request %d of %d: %v", i, len(all), err)
		}
	}
}

// leave makes all promises' clients go away, and waits until they have.
func (r *rig) leave(all []*promise) {
	r.t.Helper()
	for _, p := range all {
		p.leave()
	}
	for _, p := range all {
		r.answer(p)
	}
}

// feed is a stream that is being read.
type feed struct {
	r    *rig
	resp *http.Response
	at   *bufio.Reader
	got  strings.Builder
}

// listen sends a request for a stream and returns when its header is there.
func (r *rig) listen(body string, headers ...string) *feed {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	resp, err := r.client.Do(r.request(ctx, "/v1/chat/completions", body, headers...))
	if err != nil {
		cancel()
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cancel()
		resp.Body.Close()
	})
	return &feed{r: r, resp: resp, at: bufio.NewReader(resp.Body)}
}

// until reads until a line has the text.
func (f *feed) until(text string) {
	f.r.t.Helper()
	for {
		line, err := f.at.ReadString('\n')
		f.got.WriteString(line)
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			f.r.t.Fatalf("the stream ended with %v before %q: %s", err, text, f.got.String())
		}
	}
}

// rest reads to the end and returns all that came.
func (f *feed) rest() string {
	f.r.t.Helper()
	b, err := io.ReadAll(f.at)
	f.got.Write(b)
	if err != nil {
		f.r.t.Errorf("the stream ended with %v: %s", err, f.got.String())
	}
	return f.got.String()
}

// logged waits for the access log's line of a request.
func (r *rig) logged(id string) (line map[string]any) {
	r.t.Helper()
	eventually(r.t, func() error {
		for _, line = range r.Access() {
			if line["request_id"] == id {
				return nil
			}
		}
		return fmt.Errorf("there is no access line of %s", id)
	})
	return line
}
