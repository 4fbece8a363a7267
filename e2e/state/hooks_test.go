package state

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// startRedactor starts the hook of examples/ on a free port and returns its address.
func startRedactor(t *testing.T) string {
	t.Helper()
	const script = "../../examples/hooks/redact.py"
	gateway.DependOn(t, script)
	c := exec.Command("python3", script, "127.0.0.1:0")
	c.SysProcAttr = gateway.EndWithParent()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		t.Fatalf("the hook printed %q: %v", line, err)
	}
	return address
}

// TestSmokeTheExampleHookRedactsPrompts in each dialect, through the gateway. The engine never receives the data.
func TestSmokeTheExampleHookRedactsPrompts(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	p := r.start(rig.Settings{"store": stores("", ""), "hooks_timeout": "60s", "hooks": fmt.Sprintf(
		`[ { name: redact, url: "http://%s/", transform: true, timeout: 30s } ]`, startRedactor(t))})
	p.WaitUntilReady()
	const data = "write to jane.doe@example.com about 4111 1111 1111 1111"
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"sim","messages":[{"role":"user","content":[{"type":"text","text":"` + data + `"}]}]}`,
		"/v1/completions":      `{"model":"sim","prompt":["` + data + `"]}`,
		"/v1/messages":         `{"model":"sim","max_tokens":9,"system":"` + data + `","messages":[{"role":"user","content":"Hi"}]}`,
		"/v1/responses":        `{"model":"sim","store":false,"input":"` + data + `"}`,
	} {
		got, _ := r.post(t.Context(), p.BaseURL, strings.TrimPrefix(path, "/v1"), rig.TenantKey, body)
		if got.Status != http.StatusOK || got.Header.Get("X-Tierway-Hooks") != "redact:transformed" {
			t.Errorf("%s: %d %v %s", path, got.Status, got.Header, got.Body)
		}
		all := r.Workers[0].Recorder.Requests()
		sent := string(all[len(all)-1].Body)
		if strings.Contains(sent, "jane") || strings.Contains(sent, "4111") ||
			!strings.Contains(sent, "write to [email] about [card]") {
			t.Errorf("%s: the engine received %s", path, sent)
		}
	}
	got, _ := r.post(t.Context(), p.BaseURL, chatPath, rig.TenantKey, rig.Chat("sim", "Hi"))
	if got.Status != http.StatusOK || got.Header.Get("X-Tierway-Hooks") != "redact" {
		t.Errorf("without data: %d %v", got.Status, got.Header)
	}
}

// redacted returns the answer of the hook to a body, which it must give within 30 s.
func redacted(t *testing.T, address, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%.80s: %v", body, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%.80s: %d, %v", body, resp.StatusCode, err)
	}
	return string(text)
}

// TestSmokeTheExampleHookRedactsEveryText that a model reads, and changes nothing else of a body.
func TestSmokeTheExampleHookRedactsEveryText(t *testing.T) {
	t.Parallel()
	address := startRedactor(t)
	const data, want = `jane@example.com, j\u0040x.org: 4111 1111 1111 1111, 4111.1111.1111.1111, 378282246310005EUR`,
		`[email], [email]: [card], [card], [card]EUR`
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"DATA"},{"role":"assistant","reasoning_content":"DATA",` +
			`"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"a\":\"DATA\"}"}}]},{"role":"tool",` +
			`"tool_call_id":"c1","content":[{"type":"text","text":"DATA"}]}],"tools":[{"function":{"description":"DATA"}}]}`,
		`{"model":"m","prompt":["DATA"],"suffix":"DATA"}`,
		`{"model":"m","system":[{"type":"text","text":"DATA"}],"messages":[{"role":"user","content":[{"type":"document",` +
			`"source":{"type":"text","data":"DATA"},"title":"DATA"}]},{"role":"assistant","content":[{"type":"thinking",` +
			`"thinking":"DATA"},{"type":"tool_use","id":"t1","name":"f","input":{"a":{"b":["DATA","DATA"]}}}]}]}`,
		`{"model":"m","instructions":"DATA","input":[{"type":"function_call_output","call_id":"c","output":"DATA"},` +
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"DATA"}]}]}`,
		`{"model":"m","text_1":"DATA","text_2":["DATA"],"query":"DATA","queries":["DATA"],"documents":[{"text":"DATA"}]}`,
		`{"model":"m","input":["DATA"],"user":"DATA","metadata":{"a":"DATA"}}`,
		`{"input":[{"id":"x"},"DATA",[{"url":"y","b":"DATA"}],{"model":"DATA"}],"a":{"model":"DATA"},"model":"m"}`,
	} {
		want := `{"action":"transform","body":` + strings.ReplaceAll(body, "DATA", want) + "}"
		if got := redacted(t, address, strings.ReplaceAll(body, "DATA", data)); got != want {
			t.Errorf("the answer is\n%s\nwant\n%s", got, want)
		}
	}
	for _, body := range []string{
		`{ "model" : "a@b.c", "seed": 1e400, "n":` + strings.Repeat("9", 5000) + `, "x":-0.0, ` +
			`"previous_response_id":"1234-5678-1234-5678", "messages":[{"role":"user","content":[{"type":"image_url",` +
			`"image_url":{"url":"http://h/1234567812345678.png"}}]}]}`,
		`{"model":"m","input":"at 12:30, call 555 0100, order 12345678901, e@mail, a4111111111111111, \ud83d\ude00\n"}`,
		`{"model":"m","input":""}`,
	} {
		if got := redacted(t, address, body); got != `{"action":"allow"}` {
			t.Errorf("%.200s: %.200s", body, got)
		}
	}
	head, rest := `{"seed":1e400,"n":`+strings.Repeat("9", 5000), `,"x":-0.0,"text":"`
	numbers := `{"action":"transform","body":` + head + rest + `[email]"}}`
	if got := redacted(t, address, head+rest+`jane@example.com"}`); got != numbers {
		t.Errorf("numbers change: %.200s", got)
	}
}

// TestSmokeTheExampleHookTakesLinearTime for a megabyte of each text that makes a search backtrack. With a quadratic
// pattern, one of them takes hours.
func TestSmokeTheExampleHookTakesLinearTime(t *testing.T) {
	t.Parallel()
	address := startRedactor(t)
	const size = 1 << 20
	for _, piece := range []string{"0123456789abcdef", "a", "@", "a@", "@a-", "a.", "1", "1 ", "1234-", `\n`, `\"`} {
		for _, first := range []string{"", "a@"} {
			redacted(t, address, `{"input":"`+first+strings.Repeat(piece, size/len(piece))+`"}`)
		}
	}
	redacted(t, address, `{"input":[`+strings.Repeat(`"a",`, size/4)+`""]}`)
}
