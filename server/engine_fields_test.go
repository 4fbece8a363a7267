package server

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"tierway/openai"
)

// recorder records the last request to a worker.
type recorder struct {
	mu     sync.Mutex
	header http.Header
	body   string
	next   http.Handler
}

func (k *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	k.mu.Lock()
	k.header, k.body = r.Header.Clone(), string(body)
	k.mu.Unlock()
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	k.next.ServeHTTP(w, r)
}

// last returns header and body of the worker's last request.
func (k *recorder) last() (http.Header, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.header, k.body
}

// TestEngineFieldsAreNotForwarded: with such a field a tenant could make an engine read another host's
// memory, choose its rank, or corrupt the index of its events.
func TestEngineFieldsAreNotForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nfake-7b\r\n--b\r\nContent-Disposition: " +
			"form-data; name=\"FIELD\"\r\n\r\n1\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nx\r\n--b--\r\n"
		for _, allow := range []string{"", "allow_fields: [" + strings.Join(openai.EngineFields[:], ", ") + "],"} {
			k := &recorder{next: fakeEngine()}
			r := newRig(t, `
auth: { required: false }
health: { path: "off" }
pools: [ { name: small, model: fake-7b, serves: [chat, messages, embeddings, audio], paths: ["/v9/*"], `+allow+` workers: [ %s ] } ]
`, k)
			for _, field := range openai.EngineFields {
				for _, c := range [][3]string{
					{"/v1/chat/completions",
						`{"FIELD":{"remote_host":"10.0.0.9"},"model":"fake-7b","messages":[{"role":"user","content":"hi"}]}`,
						"application/json"},
					{"/v1/messages", `{"model":"fake-7b","max_tokens":5,"messages":[{"role":"user","content":"hi"}],"FIELD":1}`,
						"application/json"},
					{"/v1/embeddings", `{"model":"fake-7b","FIELD":1,"input":"x"}`, "application/json"},
					{"/v1/audio/transcriptions", form, "multipart/form-data; boundary=b"},
					{"/v9/generate", `{"text":"x","FIELD":["10.0.0.9"]}`, "application/json"},
				} {
					r.post(c[0], strings.ReplaceAll(c[1], "FIELD", field), "Content-Type", c[2])
					if _, body := k.last(); body == "" || strings.Contains(body, field) != (allow != "") {
						t.Errorf("%s with %q: the worker got %s", c[0], allow, body)
					}
				}
			}
			const text = `["a text about kv_transfer_params"]` // no object, so it is forwarded unchanged
			if r.post("/v9/generate", text); k.body != text {
				t.Errorf("the worker got %s", k.body)
			}
		}
	})
}

// TestMessagesCarryTheirClassToTheEngine: their body has no field for it, so vLLM reads it from a
// header.
func TestMessagesCarryTheirClassToTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &recorder{next: fakeEngine()}
		r := newRig(t, strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    engine: vllm", 1), k)
		const body = `{"model":"small","max_tokens":5,"messages":[{"role":"user","content":"hi"}]`
		for _, c := range []struct {
			path, body, class, want string
		}{
			{"/v1/messages", body + "}", "interactive", ""},
			{"/v1/messages", body + "}", "background", "10"},
			{"/v1/messages", body + "}", "batch", "20"},
			{"/v1/messages", body + `,"priority":50}`, "batch", "50"},
			{"/v1/messages", body + `,"priority":-50}`, "batch", "20"},
			{"/v1/messages", body + `,"priority":-50}`, "interactive", ""},
			{"/v1/messages/count_tokens", body + "}", "batch", ""},
			{"/v1/chat/completions", body + "}", "batch", ""}, // the body has a field for it
		} {
			a := r.post(c.path, c.body, "X-Request-Priority", c.class, "X-Vllm-Priority", "-100")
			header, _ := k.last()
			if got := header.Get("X-Vllm-Priority"); got != c.want {
				t.Errorf("%s %s %s: %d, the engine got the priority %q, want %q", c.path, c.class, c.body, a.status, got, c.want)
			}
		}
		other := newRig(t, plain, k)
		if other.post("/v1/messages", body+"}", "X-Request-Priority", "batch"); k.header.Get("X-Vllm-Priority") != "" {
			t.Errorf("an engine without support for the header got %s", k.header.Get("X-Vllm-Priority"))
		}
	})
}

// TestAnEngineWithoutPrioritiesStillAnswersMessages: after the engine has rejected the header, the
// gateway omits it.
func TestAnEngineWithoutPrioritiesStillAnswersMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, k := 0, &recorder{}
		engine := fakeEngine()
		k.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; r.Header.Get("X-Vllm-Priority") != "" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w,
					`{"type":"error","error":{"type":"invalid_request_error","message":"Got priority 20 but Priority scheduling is not enabled."}}`) // a client that left shows elsewhere
				return
			}
			engine.ServeHTTP(w, r)
		})
		r := newRig(t, strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    engine: vllm", 1), k)
		for i, want := range []int{2, 3, 4} {
			a := r.post("/v1/messages", `{"model":"small","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
				"X-Request-Priority", "batch")
			if a.status != http.StatusOK || calls != want {
				t.Errorf("request %d: %d %s after %d requests to the engine, want %d", i, a.status, a.body, calls, want)
			}
		}
	})
}
