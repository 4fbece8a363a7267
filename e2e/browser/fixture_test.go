package browser_test

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"text/template"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

const (
	adminKey  = "the-admin-key-of-the-browser-tests"
	viewerKey = "the-viewer-key-of-the-browser-tests"
	apiKey    = "the-tenant-key-of-the-browser-tests"

	// prefix is the path under which a proxy serves the admin plane.
	prefix = "/tierway/"
	// engineSeed makes the answers and speeds of the engines equal in all runs.
	engineSeed = 7
)

// configuration is the file of every gateway. small-2 has no health checks: it stays ejected for
// breaker.open_for, because no successful check ends its ejection early.
const configuration = `# The configuration of the browser tests.
watch: false
admin:
  keys:
    - { name: ops, sha256: {{.AdminKey}}, role: admin }
    - { name: audit, sha256: {{.ViewerKey}}, role: viewer }
store:
  sql: "sqlite://tierway.db"
auth:
  required: true
  keys:
    - name: acme
      sha256: {{.APIKey}}
      limits: { rpm: 100000, concurrent: 256 }
drain: { accept_grace: 1ms, timeout: 5s }
health: { interval: 30s, timeout: 30s, down_after: 2, up_after: 1 }
breaker: { consecutive_failures: 3, open_for: 10s }
decisions: { keep: 2000 }
tiers:
{{- range .Tiers}}
  - name: {{.Name}}
    model: {{.Model}}
    workers:
    {{- range .Workers}}
      - { name: {{.Name}}, url: "{{.URL}}", max_inflight: 16{{if eq .Name "small-2"}}, health: { path: "off" }{{end}} }
    {{- end}}
{{- end}}
`

// fixture is a gateway in front of simulated engines, with a control server for the test cases and
// a proxy that serves the admin plane under a prefix.
type fixture struct {
	t        *testing.T
	gateway  *gateway.Process // the newest process; it may have been stopped
	text     string           // of the configuration file at the start
	workers  []*worker
	held     *gate
	commands chan func() // run on the goroutine of the test

	dataAddr, adminAddr   string
	controlURL, prefixURL string
}

// worker is a simulated engine that can fail.
type worker struct {
	*chaos.Handler
	Name, Model, URL string
	address          string
	server           *engines.Server // nil while the engine is stopped
}

// gate holds answers until the next release. It is safe for concurrent use.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed by the next release
}

// next returns the channel that the next release closes.
func (g *gate) next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// release continues all held answers. Later answers are held again.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.open = make(chan struct{})
}

// newFixture starts the engines, the gateway, the control server and the proxy.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, held: &gate{open: make(chan struct{})}, commands: make(chan func())}
	for _, c := range engines.Demo(engineSeed) {
		f.workers = append(f.workers, f.newWorker(c))
	}
	f.dataAddr, f.adminAddr = gateway.Address(t), gateway.Address(t)
	f.text = f.configure()
	f.gateway = gateway.StartAt(t, f.dataAddr, f.adminAddr, f.text)
	f.gateway.WaitUntilReady()
	t.Cleanup(f.held.release) // a drain waits for held answers
	f.controlURL = listen(t, f.control())
	f.prefixURL = listen(t, proxyOf(t, f.gateway.AdminURL)) + prefix
	return f
}

// newWorker starts an engine of which rig.PauseMark in a prompt pauses the answer.
func (f *fixture) newWorker(c engines.Config) *worker {
	f.t.Helper()
	c.Script = func(_ string, body []byte) engines.Script {
		if !bytes.Contains(body, []byte(rig.PauseMark)) {
			return engines.Script{}
		}
		return engines.Script{HoldAfter: 1, Release: f.held.next()}
	}
	e := engines.New(c)
	f.t.Cleanup(e.Close)
	w := &worker{Handler: chaos.New(e), Name: c.Name, Model: c.Model, address: gateway.Address(f.t)}
	f.t.Cleanup(w.stop)
	if err := w.start(); err != nil {
		f.t.Fatal(err)
	}
	w.URL = w.server.URL
	return w
}

// start starts the engine unless it runs.
func (w *worker) start() (err error) {
	if w.server == nil {
		w.server, err = engines.Start(w.Handler, w.address)
	}
	return err
}

// stop resets all connections of the engine and closes its port, as a crash would.
func (w *worker) stop() {
	if w.server != nil {
		w.server.Kill()
		w.server = nil
	}
}

// configure returns the text of the configuration file.
func (f *fixture) configure() string {
	type tier struct {
		Name, Model string
		Workers     []*worker
	}
	var tiers []*tier
	for _, w := range f.workers {
		if n := len(tiers); n == 0 || tiers[n-1].Model != w.Model {
			name, _, _ := strings.Cut(w.Name, "-")
			tiers = append(tiers, &tier{Name: name, Model: w.Model})
		}
		last := tiers[len(tiers)-1]
		last.Workers = append(last.Workers, w)
	}
	var text strings.Builder
	values := map[string]any{"Tiers": tiers, "AdminKey": rig.Digest(adminKey), "ViewerKey": rig.Digest(viewerKey),
		"APIKey": rig.Digest(apiKey)}
	if err := template.Must(template.New("").Parse(configuration)).Execute(&text, values); err != nil {
		f.t.Fatal(err)
	}
	return text.String()
}

// variables returns the environment of the test cases.
func (f *fixture) variables() []string {
	return []string{"BASE_URL=" + f.gateway.BaseURL, "ADMIN_URL=" + f.gateway.AdminURL, "ADMIN_KEY=" + adminKey,
		"VIEWER_KEY=" + viewerKey, "API_KEY=" + apiKey, "CONFIG_FILE=" + f.gateway.File,
		"CONTROL_URL=" + f.controlURL, "PREFIX_URL=" + f.prefixURL, "PAUSE_MARK=" + rig.PauseMark}
}

// proxyOf returns a proxy that removes the prefix and forwards to the admin plane.
func proxyOf(t *testing.T, adminURL string) http.Handler {
	t.Helper()
	target, err := url.Parse(adminURL)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(prefix, http.StripPrefix(strings.TrimSuffix(prefix, "/"), &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog: log.New(io.Discard, "", 0), // a stopped gateway is part of the tests
	}))
	return mux
}

// listen serves a handler on a loopback address until the end of the test. It returns the URL.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}
