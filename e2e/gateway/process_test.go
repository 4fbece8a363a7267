package gateway_test

import (
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tierway/e2e/gateway"
	"tierway/engines"
)

func TestMain(m *testing.M) { os.Exit(gateway.Main(m)) }

func TestSmokeDemoServesOnceItHasPrintedItsURL(t *testing.T) {
	p := gateway.Demo(t)
	r, err := http.NewRequest(http.MethodGet, p.BaseURL+"/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.APIKey)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET /models with the printed key: %s", resp.Status)
	}
	p.WaitFor("a line in the access log", func() bool { return len(p.AccessLines()) == 1 })
	p.Stop()
	if p.Alive() {
		t.Error("the gateway is alive after Stop")
	}
}

func TestADemoLeavesNoFileAfterASignal(t *testing.T) {
	for _, sent := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sent.String(), func(t *testing.T) {
			if signal.Ignored(sent) {
				t.Skip("these tests run under nohup, which the demo respects")
			}
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			p := gateway.DemoGreeting(t)
			file := filepath.Join(dir, "tierway-demo-")
			if !strings.Contains(p.Stdout(), file) {
				t.Errorf("the greeting names no file %s*:\n%s", file, p.Stdout())
			}
			p.Signal(sent)
			p.WaitForEnd()
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("after the signal: %v, %v", left, err)
			}
			if log := p.Log(); log != "" {
				t.Errorf("the demo logged\n%s", log)
			}
		})
	}
}

func TestSmokeServeWaitsForAWorker(t *testing.T) {
	s, err := engines.Start(engines.New(engines.Config{Model: "m"}), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	p := gateway.Serve(t, `
auth: { required: false }
drain: { accept_grace: 10ms, timeout: 5s }
tiers: [ { name: only, model: m, workers: [ { name: w, url: "`+s.URL+`" } ] } ]
`)
	resp, err := http.Post(p.BaseURL+"/chat/completions", "application/json",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Routed-To") != "w" {
		t.Errorf("the first request after Serve: %s from %q", resp.Status, resp.Header.Get("X-Routed-To"))
	}
}
