package rig

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"tierway/e2e/gateway"
	"tierway/engines"
)

const (
	// AdminKey is the key of the configurations' admin.
	AdminKey = "the-admin-key-of-these-tests"
	// TenantKey is the key of their tenant.
	TenantKey = "the-tenant-key-of-these-tests"

	// AnswerText is every engine's answer unless a test has its own script.
	AnswerText = "The quick brown fox jumps over the lazy dog."

	// Holding in a prompt makes the engine stop after the answer's first token until
	// LetGo is called.
	Holding = "please hold"
)

// Rig is a gateway before engines of this process.
type Rig struct {
	*gateway.Process    // nil before Serve
	T                   *testing.T
	DataAddr, AdminAddr string // the addresses of the planes
	MetricsAt           string // the address that has the metrics
	URL                 string // of the data plane, without /v1
	Key                 string // of the requests' tenant; empty: none
	Own                 Settings
	Workers             []*Worker
	Client              *http.Client

	base    Settings
	ids     atomic.Int64
	release chan struct{} // closed by LetGo
	once    sync.Once
}

// New makes n engines named w0, w1, … that do not listen yet. Every gateway of the
// rig has the settings of base unless [Rig.Serve] replaces them.
func New(t *testing.T, n int, c engines.Config, base Settings) *Rig {
	t.Helper()
	r := &Rig{T: t, release: make(chan struct{}), Client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // the tests' certificates sign themselves
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	r.base = Settings{
		"admin":  `{ keys: [ { name: tests, sha256: ` + Digest(AdminKey) + ` } ] }`,
		"auth":   `{ keys: [ { name: acme, sha256: ` + Digest(TenantKey) + ` } ] }`,
		"health": `{ path: "off" }`, // engines that a test does not stop are up
		"drain":  `{ accept_grace: 1ms, timeout: 20s }`,
	}.With(base)
	script := c.Script
	c.Script = func(path string, body []byte) engines.Script {
		s := engines.Script{Text: AnswerText}
		if script != nil {
			s = script(path, body)
		}
		if bytes.Contains(body, []byte(Holding)) {
			s.HoldAfter, s.Release = 1, r.release
		}
		return s
	}
	for i := range n {
		r.Workers = append(r.Workers, NewWorker(t, fmt.Sprintf("w%d", i), c))
	}
	t.Cleanup(r.LetGo)
	return r
}

// Listen starts the engines. It returns r.
func (r *Rig) Listen() *Rig {
	r.T.Helper()
	for _, w := range r.Workers {
		w.Listen()
	}
	return r
}

// LetGo ends the holding of all requests, also of later ones.
func (r *Rig) LetGo() { r.once.Do(func() { close(r.release) }) }

// Tiers is the configuration's tiers: one, named small, of all workers. Workers
// and tier have further keys in YAML, which may be empty.
func (r *Rig) Tiers(perWorker, perTier string) string {
	return "[ " + Tier("small", perWorker, perTier, r.Workers...) + " ]"
}

// Settings returns the configuration of a gateway: the base with own over it.
func (r *Rig) Settings(own Settings) Settings {
	all := Settings{"tiers": r.Tiers("", "")}
	return all.With(r.base).With(own)
}

// Serve starts the gateway. Own replaces settings of the base; env is added to its
// environment. When the test ends the gateway must be quiet.
func (r *Rig) Serve(own Settings, env ...string) {
	r.T.Helper()
	r.Own = r.Settings(own)
	r.Attach(gateway.Start(r.T, r.Own.String(), env...))
}

// Attach makes a started gateway the rig's.
func (r *Rig) Attach(p *gateway.Process) {
	r.Process = p
	r.DataAddr = strings.TrimSuffix(strings.TrimPrefix(p.BaseURL, "http://"), "/v1")
	r.AdminAddr = strings.TrimPrefix(p.AdminURL, "http://")
	r.MetricsAt = r.AdminAddr
	if r.URL = "http://" + r.DataAddr; r.Own["tls"] != "" {
		r.URL = "https://" + r.DataAddr
	}
	r.T.Cleanup(func() {
		r.LetGo()
		r.QuietIn(p)
		r.Client.CloseIdleConnections() // a stop takes its time with those of HTTP/2
	})
}

// Reload replaces settings in the configuration file and waits until the gateway
// applied it.
func (r *Rig) Reload(own Settings) {
	r.T.Helper()
	reloads := func() float64 { return r.Sum("tierway_config_reloads_total") }
	before := reloads()
	maps.Copy(r.Own, own)
	if err := os.WriteFile(r.File, []byte(r.Own.String()), 0o600); err != nil {
		r.T.Fatal(err)
	}
	r.Signal(syscall.SIGHUP)
	Eventually(r.T, func() error {
		if reloads() <= before {
			return errors.New("the gateway does not reload: " + r.Log())
		}
		return nil
	})
	if n := r.Sum("tierway_config_reloads_total", `result="rejected"`); n != 0 {
		r.T.Fatalf("%v reloads were rejected: %s", n, r.Log())
	}
}

// Metrics reads the metrics where the gateway has them.
func (r *Rig) Metrics() (gateway.Samples, error) { return Scrape("http://" + r.MetricsAt + "/metrics") }

// Sum adds up a metric's series at this moment; -1 when it cannot be read.
func (r *Rig) Sum(name string, pairs ...string) float64 {
	m, err := r.Metrics()
	if err != nil {
		return -1
	}
	return m.Sum(name, pairs...)
}

// Quiet is QuietIn of the rig's gateway.
func (r *Rig) Quiet() { r.T.Helper(); r.QuietIn(r.Process) }

// QuietIn waits until nothing is in flight or queued in a gateway and the engines.
// It checks that each request that began has ended and been counted once. A gateway
// that the test has ended is quiet.
func (r *Rig) QuietIn(p *gateway.Process) {
	r.T.Helper()
	Eventually(r.T, func() error {
		if !p.Alive() {
			return nil
		}
		scrape := p.Metrics
		if p == r.Process {
			scrape = r.Metrics
		}
		m, err := scrape()
		if err != nil {
			return err
		}
		if err := quiet(m); err != nil {
			return err
		}
		for _, w := range r.Workers {
			if e, c := w.Engine.Stats().Open, w.Handler.Stats().Open; e != 0 || c != 0 {
				return fmt.Errorf("%s still serves %d requests, %d before the faults", w.Name, e, c)
			}
		}
		return nil
	})
}

// quiet reports the first series that contradicts a gateway without requests.
func quiet(m gateway.Samples) error {
	if n := m.Sum("tierway_panics_total"); n != 0 {
		return fmt.Errorf("%v handlers panicked", n)
	}
	depths := 0
	for series, v := range m {
		name, _, _ := strings.Cut(series, "{")
		if name == "tierway_queue_depth" {
			depths++
		}
		switch name {
		case "tierway_inflight", "tierway_queue_depth", "tierway_queue_bytes",
			"tierway_worker_inflight", "tierway_worker_pending_tokens", "tierway_worker_output_tokens":
			if v != 0 {
				return fmt.Errorf("%s is %v without requests", series, v)
			}
		}
	}
	if depths == 0 {
		return errors.New("there is no tierway_queue_depth")
	}
	if began, ended := m.Sum("tierway_requests_started_total"), m.Sum("tierway_requests_total"); began != ended {
		return fmt.Errorf("%v requests began and %v ended", began, ended)
	}
	in := m.Sum("tierway_queue_entered_total")
	out := m.Sum("tierway_queue_dispatched_total") + m.Sum("tierway_queue_abandoned_total") +
		m.Sum("tierway_queue_expired_total")
	if in != out {
		return fmt.Errorf("%v requests entered a queue and %v were dispatched, abandoned or expired", in, out)
	}
	return nil
}
