package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/engines/chaos"
	"tierway/fixedseed"
)

// stagesConfig is a tier whose first workers compute prompts and whose last ones generate the answers.
const stagesConfig = `
auth: { required: false }
health: { path: "off" }
%s
tiers:
  - name: large
    model: fake-7b
    serves: [chat, completions, responses, messages, embeddings]
    engine: %s
    handover: %s
    uncached_threshold: 1
    workers: [ %s ]
`

// stage is a worker of a stagesRig.
type stage struct {
	*engines.Engine
	*chaos.Recorder
	faults *chaos.Handler
	name   string
	ends   time.Duration // after which a request's connection ends; 0: never

	instead func(out http.ResponseWriter, r *http.Request) (answered bool) // nil: the engine answers all

	delay   time.Duration // before it reads a request
	mu      sync.Mutex
	objects [][]byte  // of its answers
	ended   time.Time // when it answered its last request, or saw that the gateway left
	open    int       // requests at present
	peak    int       // the most at once
}

// keepObject records the hand-over object of an answer.
func (w *stage) keepObject(answer []byte) {
	var v struct {
		Object json.RawMessage `json:"kv_transfer_params"`
	}
	if json.Unmarshal(answer, &v) == nil && len(v.Object) > len("null") {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.objects = append(w.objects, v.Object)
	}
}

// ServeHTTP answers, and keeps the object of a prefill worker.
func (w *stage) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.open++
	w.peak = max(w.peak, w.open)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.open--
		w.ended = time.Now()
		w.mu.Unlock()
	}()
	time.Sleep(w.delay)
	if w.instead != nil && w.instead(out, r) {
		return
	}
	if w.ends > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), w.ends)
		defer cancel()
		w.Recorder.ServeHTTP(out, r.WithContext(ctx))
		if ctx.Err() != nil && r.Context().Err() == nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	if w.name[0] != 'p' {
		w.Recorder.ServeHTTP(out, r)
		return
	}
	tee := &teeWriter{ResponseWriter: out}
	defer func() { w.keepObject(tee.body.Bytes()) }()
	w.Recorder.ServeHTTP(tee, r)
}

// teeWriter keeps a copy of an answer.
type teeWriter struct {
	http.ResponseWriter
	body bytes.Buffer
}

// Write implements http.ResponseWriter.
func (w *teeWriter) Write(p []byte) (int, error) {
	w.body.Write(p)
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the writer for http.ResponseController.
func (w *teeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// objects returns the objects of all prefill answers.
func (s *stagesRig) objects() (all [][]byte) {
	for _, w := range s.prefills {
		w.mu.Lock()
		all = append(all, w.objects...)
		w.mu.Unlock()
	}
	return all
}

// stagesRig is a gateway in front of two prefill workers p0 and p1, two decode workers d0 and d1, and further ones.
type stagesRig struct {
	*rig
	stages   []*stage
	prefills []*stage
	decodes  []*stage
}

// newStagesRig serves a hand-over. Its further keys are at the top level of the configuration.
func newStagesRig(t *testing.T, handover, keys string, change func(name string, c *engines.Config), names ...string,
) *stagesRig {
	t.Helper()
	peers, s := new(engines.Peers), new(stagesRig)
	var list []string
	if names == nil {
		names = []string{"p0", "p1", "d0", "d1"}
	}
	for i, name := range names {
		role := map[byte]string{'p': "prefill", 'd': "decode", 'x': "decode", 'b': "both"}[name[0]]
		c := engines.Config{Name: name, Model: "fake-7b", Seed: 1, CacheTokens: 1 << 18, Handover: handover, Peers: peers,
			Context: 1 << 17, KVAddress: fmt.Sprintf("10.1.2.%d:14579", i), Prefill: 10_000, PerToken: 20 * time.Millisecond,
			Clock: func() time.Time { return time.Unix(1_700_000_000, 0) }}
		if role != "both" {
			c.Role = role
		} else if handover == engines.HandoverP2PNCCL || handover == engines.HandoverSGLang {
			c.Handover = ""
		}
		if handover == engines.HandoverSGLang {
			c.KVAddress = ""
		}
		if change != nil {
			change(name, &c)
		}
		e := engines.New(c)
		faults := chaos.New(e)
		w := &stage{Engine: e, Recorder: chaos.Record(faults), faults: faults, name: name}
		extra := ""
		if handover == engines.HandoverP2PNCCL && role != "both" {
			extra = fmt.Sprintf(", kv_address: %q", c.KVAddress)
		}
		url := "http://127.0.0.1:1" // accepts no connection
		if name[0] != 'x' {
			url = serveEngine(t, w)
		}
		list = append(list, fmt.Sprintf("{ name: %s, url: %q, role: %s%s }", name, url, role, extra))
		s.stages = append(s.stages, w)
		switch role {
		case "prefill":
			s.prefills = append(s.prefills, w)
		case "decode":
			s.decodes = append(s.decodes, w)
		}
	}
	engine := "vllm"
	if handover == engines.HandoverSGLang {
		engine = "sglang"
	}
	s.rig = newRig(t, fmt.Sprintf(stagesConfig, keys, engine, handover, strings.Join(list, ", "))+"# %s\n")
	return s
}

// kvStats are the sums over all engines.
type kvStats struct {
	pinned, open                      int
	leaked, used, reused, wrong, keys int64
	recomputed                        int64
}

func (s *stagesRig) sum() (all kvStats) {
	for _, w := range s.stages {
		st := w.Stats()
		all.pinned += st.BlocksPinned
		all.open += st.Open
		all.leaked += st.BlocksLeaked
		all.used += st.ObjectsUsed
		all.reused += st.ObjectsReused
		all.wrong += st.WrongAnswers
		all.keys += st.KeysReused
		all.recomputed += st.Recomputed
	}
	return all
}

// wantClean verifies, after all leases have ended, that no engine kept a prompt for nothing or answered with another
// one.
func (s *stagesRig) wantClean() kvStats {
	s.t.Helper()
	synctest.Wait()
	all := s.sum()
	if all.pinned != 0 || all.open != 0 {
		s.t.Errorf("%d blocks are pinned, %d requests are open", all.pinned, all.open)
	}
	time.Sleep(time.Minute)
	all = s.sum()
	if all.leaked != 0 || all.reused != 0 || all.wrong != 0 || all.keys != 0 {
		s.t.Errorf("%+v", all)
	}
	return all
}

// metric returns the value of a series; 0 without it.
func (s *stagesRig) metric(series string) (n float64) {
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(s.scrape())
	if m != nil {
		_, _ = fmt.Sscan(m[1], &n)
	}
	return n
}

func (s *stagesRig) handovers(result string) float64 {
	return s.metric(`tierway_handover_total{result="` + result + `",tier="large"}`)
}

// longText is a prompt of about that many tokens. Prompts of different numbers have no common beginning.
func longText(number, tokens int) string {
	return fmt.Sprintf("Number %d. ", number) + strings.Repeat("word ", tokens)
}

// reference is the answer of an engine that serves the request alone.
func reference(path, body string) string {
	e := engines.New(engines.Config{Name: "fake", Model: "fake-7b", Seed: 1, Context: 1 << 17, CacheTokens: 1 << 18,
		Clock: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	e.ServeHTTP(w, r)
	return w.Body.String()
}

// generated returns the text of an answer or a stream of chat, completions, responses or messages.
func generated(body string) string {
	var text strings.Builder
	read := func(data []byte) {
		var v struct {
			Type    string
			Choices []struct {
				Text           string
				Message, Delta struct{ Content string }
			}
			Content []struct{ Text string }
			Output  []struct{ Content []struct{ Text string } }
			Delta   json.RawMessage
		}
		if json.Unmarshal(data, &v) != nil {
			return
		}
		for _, c := range v.Choices {
			text.WriteString(c.Text + c.Message.Content + c.Delta.Content)
		}
		for _, c := range v.Content {
			text.WriteString(c.Text)
		}
		for _, o := range v.Output {
			for _, c := range o.Content {
				text.WriteString(c.Text)
			}
		}
		var delta struct{ Text string }
		var plain string
		switch {
		case v.Type == "response.output_text.delta" && json.Unmarshal(v.Delta, &plain) == nil:
			text.WriteString(plain)
		case v.Type == "content_block_delta" && json.Unmarshal(v.Delta, &delta) == nil:
			text.WriteString(delta.Text)
		}
	}
	if strings.HasPrefix(body, "{") {
		read([]byte(body))
		return text.String()
	}
	for line := range strings.SplitSeq(body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			read([]byte(data))
		}
	}
	return text.String()
}

// request is one request of a client.
type request struct{ path, body string }

// oneRequest returns a request of a dialect, with a prompt of its own.
func oneRequest(number, tokens int, stream bool) request {
	more := ""
	if stream {
		more = `,"stream":true`
	}
	text, _ := json.Marshal(longText(number, tokens))
	switch number % 4 {
	case 1:
		return request{"/v1/completions", fmt.Sprintf(`{"model":"large","prompt":%s,"max_tokens":8%s}`, text, more)}
	case 2:
		return request{"/v1/responses",
			fmt.Sprintf(`{"model":"large","input":%s,"store":false,"max_output_tokens":8%s}`, text, more)}
	case 3:
		return request{"/v1/messages",
			fmt.Sprintf(`{"model":"large","messages":[{"role":"user","content":%s}],"max_tokens":8%s}`, text, more)}
	}
	return request{"/v1/chat/completions",
		fmt.Sprintf(`{"model":"large","messages":[{"role":"user","content":%s}],"max_tokens":8%s}`, text, more)}
}

// wantAnswer verifies the answer to a request.
func wantAnswer(t *testing.T, q request, a httpAnswer) {
	t.Helper()
	want := generated(reference(q.path, strings.Replace(q.body, `"model":"large"`, `"model":"fake-7b"`, 1)))
	if got := generated(a.body); a.status != http.StatusOK || a.err != nil || got != want || got == "" {
		t.Errorf("%s: %d %v, text %q; want %q: %.400s", q.path, a.status, a.err, got, want, a.body)
	}
	for _, internal := range []string{"kv_transfer_params", "prompt_token_ids\":[", "remote_", "_addr_", "10.1.2."} {
		if strings.Contains(a.body, internal) {
			t.Errorf("%s: the client received %s: %.600s", q.path, internal, a.body)
		}
	}
}

// each runs n requests, of which at most 16 at a time.
func each(n int, do func(i int)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			do(i)
			<-slots
		})
	}
	group.Wait()
}

func TestPD1EachObjectIsUsedOnceAndUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newStagesRig(t, "nixl", "", nil), fixedseed.Samples(120, 1000)
		each(n, func(i int) {
			q := oneRequest(i, 50, i/4%2 == 0)
			wantAnswer(t, q, s.post(q.path, q.body))
		})
		all := s.wantClean()
		if all.used != int64(n) || s.handovers("remote") != float64(n) {
			t.Errorf("%d objects were used, %v hand-overs counted; want %d", all.used, s.handovers("remote"), n)
		}
		for _, w := range s.prefills {
			for _, r := range w.Requests() {
				wantPrefillRequest(t, r)
			}
		}
		var sent []byte // the block ids exceed the exact integers of a float64
		for _, w := range s.decodes {
			for _, r := range w.Requests() {
				sent = append(sent, r.Body...)
			}
		}
		for _, object := range s.objects() {
			if got := bytes.Count(sent, object[1:]); got != 1 { // token ids may follow the brace
				t.Errorf("the object %s was sent %d times", object, got)
			}
		}
	})
}

// wantPrefillRequest verifies the fields of a request to a prefill worker.
func wantPrefillRequest(t *testing.T, r chaos.Recorded) {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	limit := "max_tokens"
	if strings.Contains(r.URL, "responses") {
		limit = "max_output_tokens"
	}
	if string(body[limit]) != "1" || string(body["stream"]) != "false" || body["stream_options"] != nil ||
		string(body["kv_transfer_params"]) != `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,`+
			`"remote_block_ids":null,"remote_host":null,"remote_port":null}` {
		t.Errorf("the prefill request is %.400s", r.Body)
	}
}

func TestPD2ClientsThatLeaveLeakNoBlocks(t *testing.T) {
	for _, handover := range []string{"nixl", "p2p_nccl", "sglang"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, handover, "", nil)
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range fixedseed.Samples(60, 200) {
				// The prefill takes 0.3 s, the answer 0.16 s after it.
				left := time.Duration(rng.Int64N(int64(600 * time.Millisecond)))
				if i%4 == 0 {
					left = 290*time.Millisecond + left/20 // near the hand-over
				}
				q := oneRequest(i, 3000, i%2 == 0)
				s.leaveAfter(q, left)
				time.Sleep(2*time.Second + 400*time.Millisecond)
				synctest.Wait()
				if n := s.Inflight(); n != 0 {
					t.Fatalf("%s: %d requests are in flight 2 s after their client left at %v", handover, n, left)
				}
			}
			s.wantClean()
			if handover != "sglang" && s.handovers("abandoned") == 0 {
				t.Errorf("%s: no hand-over was abandoned", handover)
			}
		})
	}
}

// leaveAfter sends a request whose client leaves after a time.
func (s *stagesRig) leaveAfter(q request, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+q.path, strings.NewReader(q.body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if resp, err := s.net.transport.RoundTrip(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

func TestPD3FailedPrefillsCostNoAnswer(t *testing.T) {
	n := fixedseed.Samples(30, 100)
	for _, c := range []struct {
		name  string
		fault chaos.Fault
		null  bool
	}{
		{name: "500", fault: chaos.Fault{Kind: chaos.Status, Status: 500}},
		{name: "reset", fault: chaos.Fault{Kind: chaos.Reset}},
		{name: "null parameters", null: true},
	} {
		for _, both := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newStagesRig(t, "nixl", steadyKeys, func(name string, e *engines.Config) {
					if c.null && (name == "p0" || both) && name[0] == 'p' {
						e.Script = func(string, []byte) engines.Script { return engines.Script{NoObject: true} }
					}
				})
				for i, w := range s.prefills {
					if !c.null && (i == 0 || both) {
						if err := w.faults.Set(c.fault); err != nil {
							t.Fatal(err)
						}
					}
				}
				for i := range n {
					q := oneRequest(i, 50, i/4%2 == 0)
					wantAnswer(t, q, s.post(q.path, q.body))
				}
				s.wantClean()
				sent := 0
				for _, w := range s.prefills {
					sent += len(w.Requests())
				}
				if sent > 2*n {
					t.Errorf("%s: %d prefill requests for %d requests", c.name, sent, n)
				}
				recomputed, remote := s.handovers("recomputed"), s.handovers("remote")
				if both && recomputed != float64(n) && s.handovers("local")+recomputed != float64(n) ||
					c.null && recomputed == 0 || !both && remote == 0 {
					t.Errorf("%s, both %v: %v recomputed, %v remote, %v local", c.name, both, recomputed, remote, s.handovers("local"))
				}
			})
		}
	}
}

// serveEngine serves an engine that knows which connections are used again. It is closed with the test.
func serveEngine(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	l, err := networkOf(t).Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := engines.Serve(h, l)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.URL
}
