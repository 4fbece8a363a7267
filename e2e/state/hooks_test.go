package state

import (
	"bufio"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

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
	p := r.start(rig.Settings{"store": stores("", ""), "hooks": fmt.Sprintf(
		`[ { name: redact, url: "http://%s/", transform: true, timeout: 1s } ]`, startRedactor(t))})
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
