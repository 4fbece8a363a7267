//go:build vllm

package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/loopback"
	"tierway/e2e/rig"
)

const (
	// lease is the time for which the prefill engine keeps a prompt that no decode engine has read.
	lease = 30 * time.Second
	// threshold is the number of prompt tokens from which on the prefill engine computes a prompt.
	threshold = 64
	// expiries counts the prompts that ended by the lease, in the metrics of a prefill engine.
	expiries = "vllm:nixl_num_kv_expired_reqs_total"
)

// pair is a prefill engine and a decode engine behind a gateway. The decode engine reads the caches of the prefill
// engine with NIXL, in the main memory.
type pair struct {
	*gateway.Process
	t               *testing.T
	prefill, decode *engine
}

// transferrer returns the options of an engine of a pair.
func transferrer(t *testing.T, role string) options {
	t.Helper()
	return options{
		arguments: []string{"--load-format", "safetensors", "--kv-transfer-config", encoded(t, map[string]any{
			"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu",
			"kv_connector_extra_config": map[string]any{"kv_lease_duration": int(lease.Seconds())},
		})},
		environment: []string{"VLLM_NIXL_SIDE_CHANNEL_HOST=" + loopback.Host(),
			"VLLM_NIXL_SIDE_CHANNEL_PORT=" + portOf(gateway.Address(t)), "UCX_TLS=tcp,shm,self", "UCX_NET_DEVICES=lo"},
	}
}

func newPair(t *testing.T) *pair {
	t.Helper()
	model := makeModel(t)
	p := &pair{
		t:       t,
		prefill: newEngine(t, "p0", model, transferrer(t, "kv_producer")),
		decode:  newEngine(t, "d0", model, transferrer(t, "kv_consumer")),
	}
	p.Process = gateway.Start(t, rig.Settings{
		"admin":  `{ keys: [ { name: tests, sha256: ` + rig.Digest(rig.AdminKey) + ` } ] }`,
		"auth":   `{ required: false }`,
		"store":  `{ sql: "" }`,
		"drain":  `{ accept_grace: 1ms, timeout: 20s }`,
		"health": `{ interval: 2s, timeout: 2s }`,
		"tiers": fmt.Sprintf(`[ { name: small, model: tiny, engine: vllm, handover: nixl, handover_lease: %s, `+
			`uncached_threshold: %d, workers: [ { name: p0, url: %q, role: prefill }, { name: d0, url: %q, role: decode } ] } ]`,
			lease, threshold, p.prefill.url, p.decode.url),
	}.String())
	for _, e := range []*engine{p.prefill, p.decode} {
		e.waitUntilReady()
	}
	p.WaitUntilReady()
	p.waitForWorkers()
	return p
}

func (p *pair) waitForWorkers() {
	p.t.Helper()
	rig.Within(p.t, time.Minute, func() error {
		m, err := p.Metrics()
		if err == nil && m.Sum("tierway_worker_up") != 2 {
			err = errors.New("a worker is not up")
		}
		return err
	})
}

// in directs failures to a subtest.
func (p *pair) in(t *testing.T) *pair {
	p.t = t
	return p
}

// counted returns a metric of an engine.
func (p *pair) counted(e *engine, name string, pairs ...string) float64 {
	p.t.Helper()
	m, err := rig.Scrape(e.url + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	return m.Sum(name, pairs...)
}

// transferred returns the prompt tokens that the decode engine has read from the prefill engine.
func (p *pair) transferred() int64 {
	return int64(p.counted(p.decode, "vllm:prompt_tokens_by_source_total", `source="external_kv_transfer"`))
}

// expected returns the text that the decode engine generates without a hand-over. Afterwards no engine has the prompt.
func (p *pair) expected(path, body string) string {
	p.t.Helper()
	c, err := post(p.t.Context(), p.decode.url+"/v1"+path, []byte(body))
	if err != nil {
		p.t.Fatal(err)
	}
	p.prefill.clear()
	p.decode.clear()
	return c.text()
}

// wants sends a request through the gateway. Its text must be the one of a single engine, its prompt must be read from
// the prefill engine if it is remote, and no field of the hand-over may be in it.
func (p *pair) wants(name, path, body, text string, remote bool) completion {
	p.t.Helper()
	before := p.transferred()
	c, err := post(p.t.Context(), p.BaseURL+path, []byte(body))
	if err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	if got := streamedText(&c); got != text {
		p.t.Errorf("%s: the text is %q, without a hand-over %q", name, got, text)
	}
	if moved := p.transferred() - before; remote != (moved > 0) {
		p.t.Errorf("%s: %d tokens were transferred, remote is %v", name, moved, remote)
	}
	for _, internal := range []string{"kv_transfer_params", `"prompt_token_ids":[`, p.prefill.url, p.decode.url} {
		if bytes.Contains(c.raw, []byte(internal)) {
			p.t.Errorf("%s: %s is in the answer %s", name, internal, c.raw)
		}
	}
	if c.worker != p.decode.name {
		p.t.Errorf("%s: the answer comes from %q, want %s", name, c.worker, p.decode.name)
	}
	return c
}

// streamedText returns the text of an answer, which may be a stream of chat chunks.
func streamedText(c *completion) string {
	if !bytes.HasPrefix(c.raw, []byte("data:")) {
		return c.text()
	}
	var b strings.Builder
	for line := range bytes.Lines(c.raw) {
		var chunk completion
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && json.Unmarshal(data, &chunk) == nil {
			b.WriteString(chunk.text()) // the line [DONE] is no JSON
		}
	}
	return b.String()
}

// TestHandoverBetweenTwoEngines: the answers of a pair are those of one engine, and no prompt stays on the prefill
// engine until its lease ends.
func TestHandoverBetweenTwoEngines(t *testing.T) {
	p := newPair(t)
	t.Run("dialects", func(t *testing.T) { p.in(t).testDialects() })
	t.Run("cached tokens", func(t *testing.T) { p.in(t).testCachedTokens() })
	t.Run("local", func(t *testing.T) { p.in(t).testLocal() })
	t.Run("clients that leave", func(t *testing.T) { p.in(t).testClientsThatLeave() })
	t.Run("no prompt expires", func(t *testing.T) { p.in(t).testNoPromptExpires() })
	t.Run("restart", func(t *testing.T) { p.in(t).testRestart() })
}

// testDialects sends a request of each dialect, and a stream.
func (p *pair) testDialects() {
	prompt := func(i int) string { return rig.Quoted(words(i, 40)) }
	for _, c := range []struct{ name, path, body string }{
		{"chat", chatPath, chat("", 12, message{"user", words(1, 40)})},
		{"chat with stop", chatPath, chat(`"stop":["e"],"min_tokens":3,`, 12, message{"user", words(2, 40)})},
		{"completion", completionPath, `{"model":"tiny","max_tokens":12,"temperature":0,"prompt":` + prompt(3) + `}`},
		{"completion of tokens", completionPath, tokens(5*blockTokens + 7)},
		{"messages", "/messages", `{"model":"tiny","max_tokens":12,"temperature":0,"messages":[{"role":"user","content":` +
			prompt(4) + `}]}`},
		{"responses", "/responses", `{"model":"tiny","max_output_tokens":12,"temperature":0,"store":false,"input":` +
			prompt(5) + `}`},
	} {
		p.wants(c.name, c.path, c.body, p.expected(c.path, c.body), true)
	}
	whole := chat("", 12, message{"user", words(6, 40)})
	stream := chat(`"stream":true,"stream_options":{"include_usage":true},`, 12, message{"user", words(6, 40)})
	p.wants("stream", chatPath, stream, p.expected(chatPath, whole), true)
}

// testCachedTokens sends two chats with one system prompt. For the decode engine, all tokens of the second one are
// cached; the answer states those that the prefill engine had.
func (p *pair) testCachedTokens() {
	system := message{"system", words(10, 40)}
	first := chat("", 8, system, message{"user", words(11, 20)})
	second := chat("", 8, system, message{"user", words(12, 20)})
	text := [2]string{p.expected(chatPath, first), p.expected(chatPath, second)}
	if c := p.wants("first chat", chatPath, first, text[0], true); c.cached() != 0 {
		p.t.Errorf("%d tokens of the first chat are cached", c.cached())
	}
	c := p.wants("second chat", chatPath, second, text[1], true)
	if c.cached() == 0 || c.cached() > c.Usage.Prompt-threshold {
		p.t.Errorf("%d of %d tokens of the second chat are cached", c.cached(), c.Usage.Prompt)
	}
}

// testLocal sends requests that one engine computes: a short one, and one with two choices.
func (p *pair) testLocal() {
	short := chat("", 8, message{"user", "Where are the maps?"})
	p.wants("short", chatPath, short, p.expected(chatPath, short), false)
	two := strings.Replace(chat(`"n":2,"seed":7,`, 8, message{"user", words(20, 40)}),
		`"temperature":0`, `"temperature":0.5`, 1) // a temperature of 0 permits one choice only
	p.wants("two choices", chatPath, two, p.expected(chatPath, two), false)
}

// testClientsThatLeave sends chats of which the clients leave at different times.
func (p *pair) testClientsThatLeave() {
	for i := range 40 {
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Duration(i)*15*time.Millisecond)
		post(ctx, p.BaseURL+chatPath, []byte(chat("", 4, message{"user", words(100+i, 100)}))) // most have no answer
		cancel()
	}
	rig.Within(p.t, time.Minute, func() error {
		m, err := p.Metrics()
		if open := m.Sum("tierway_handover_open"); err == nil && open != 0 {
			err = fmt.Errorf("%v hand-overs are open", open)
		}
		return err
	})
	m, err := p.Metrics()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, result := range []string{"remote", "local", "recomputed", "failed", "abandoned"} {
		p.t.Logf("%s: %v", result, m.Sum("tierway_handover_total", `result="`+result+`"`))
	}
	body := chat("", 8, message{"user", words(30, 40)})
	p.wants("afterwards", chatPath, body, p.expected(chatPath, body), true)
}

// testNoPromptExpires waits until the leases of all earlier prompts have ended.
func (p *pair) testNoPromptExpires() {
	rig.Pause(p.t.Context(), lease+5*time.Second)
	if n := p.counted(p.prefill, expiries); n != 0 {
		p.t.Errorf("%v prompts stayed on the prefill engine until their lease ended", n)
	}
}

// testRestart kills the prefill engine: the decode engine computes prompts itself. After a restart the prefill engine
// has another id, and its caches are read again.
func (p *pair) testRestart() {
	bodies := [2]string{chat("", 8, message{"user", words(40, 40)}), chat("", 8, message{"user", words(41, 40)})}
	text := [2]string{p.expected(chatPath, bodies[0]), p.expected(chatPath, bodies[1])}
	p.prefill.kill()
	p.wants("without a prefill engine", chatPath, bodies[0], text[0], false)
	p.prefill.start()
	p.prefill.waitUntilReady()
	p.waitForWorkers()
	p.wants("after the restart", chatPath, bodies[1], text[1], true)
}
