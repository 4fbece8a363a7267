package rig

import (
	"bytes"
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
	// AdminKey is the key of the admin in every configuration.
	AdminKey = "the-admin-key-of-these-tests"
	// TenantKey is the key of the tenant acme in every configuration.
	TenantKey = "the-tenant-key-of-these-tests"

	// AnswerText is the answer of every engine unless a test sets a script.
	AnswerText = "The quick brown fox jumps over the lazy dog."

	// PauseMark in a prompt makes the engine pause after the first token until ResumePaused is
	// called.
	PauseMark = "please hold"
)

// Rig is a gateway in front of engines of this process.
type Rig struct {
	*gateway.Process    // nil before Serve
	T                   *testing.T
	DataAddr, AdminAddr string   // addresses of the planes
	MetricsAt           string   // address that serves the metrics
	URL                 string   // of the data plane, without /v1
	Key                 string   // key of the requests; "" sends none
	Config              Settings // of the running gateway
	Workers             []*Worker
	Client              *http.Client

	base    Settings
	ids     atomic.Int64
	release chan struct{} // closed by ResumePaused
	once    sync.Once
}

// New makes n engines named w0, w1, … that do not listen yet. Every gateway of the rig gets the
// settings of base; [Rig.Serve] may replace them.
func New(t *testing.T, n int, c engines.Config, base Settings) *Rig {
	t.Helper()
	r := &Rig{T: t, release: make(chan struct{}), Client: NewClient(t)}
	r.base = Settings{
		"admin":  `{ keys: [ { name: tests, sha256: ` + Digest(AdminKey) + ` } ] }`,
		"auth":   `{ keys: [ { name: acme, sha256: ` + Digest(TenantKey) + ` } ] }`,
		"health": `{ path: "off" }`, // engines count as up unless requests fail
		"drain":  `{ accept_grace: 1ms, timeout: 20s }`,
	}.With(base)
	script := c.Script
	c.Script = func(path string, body []byte) engines.Script {
		s := engines.Script{Text: AnswerText}
		if script != nil {
			s = script(path, body)
		}
		if bytes.Contains(body, []byte(PauseMark)) {
			s.HoldAfter, s.Release = 1, r.release
		}
		return s
	}
	for i := range n {
		r.Workers = append(r.Workers, NewWorker(t, fmt.Sprintf("w%d", i), c))
	}
	t.Cleanup(r.ResumePaused)
	return r
}

// Listen starts the engines and returns r.
func (r *Rig) Listen() *Rig {
	r.T.Helper()
	for _, w := range r.Workers {
		w.Listen()
	}
	return r
}

// ResumePaused resumes all answers that PauseMark pauses. Later answers are not paused.
func (r *Rig) ResumePaused() { r.once.Do(func() { close(r.release) }) }

// Tiers returns the setting tiers: one tier named small with all workers. perWorker and perTier
// are further keys in YAML and may be empty.
func (r *Rig) Tiers(perWorker, perTier string) string {
	return "[ " + Tier("small", perWorker, perTier, r.Workers...) + " ]"
}

// Settings returns the configuration of a gateway: the base with overrides.
func (r *Rig) Settings(overrides Settings) Settings {
	all := Settings{"tiers": r.Tiers("", "")}
	return all.With(r.base).With(overrides)
}

// Serve starts the gateway. overrides replaces settings of the base; env is added to the variables of the
// gateway. The test fails unless the gateway is idle when the test ends.
func (r *Rig) Serve(overrides Settings, env ...string) {
	r.T.Helper()
	r.ServeAt("127.0.0.1:0", "127.0.0.1:0", overrides, env...)
}

// ServeAt is Serve with given addresses of the data plane and the admin plane.
func (r *Rig) ServeAt(data, admin string, overrides Settings, env ...string) {
	r.T.Helper()
	r.Config = r.Settings(overrides)
	r.Attach(EnvironmentOf(r.T).StartAt(r.T, data, admin, r.Config.String(), env...))
}

// Attach makes p the gateway of the rig.
func (r *Rig) Attach(p *gateway.Process) {
	r.Process = p
	r.DataAddr = strings.TrimSuffix(strings.TrimPrefix(p.BaseURL, "http://"), "/v1")
	r.AdminAddr = strings.TrimPrefix(p.AdminURL, "http://")
	r.MetricsAt = r.AdminAddr
	if r.URL = "http://" + r.DataAddr; r.Config["tls"] != "" {
		r.URL = "https://" + r.DataAddr
	}
	r.T.Cleanup(func() {
		r.ResumePaused()
		r.WaitUntilIdleIn(p)
		r.Client.CloseIdleConnections() // a stop is slow with idle HTTP/2 connections
	})
}

// Reload overrides settings in the configuration file and waits until the gateway has applied
// it.
func (r *Rig) Reload(overrides Settings) {
	r.T.Helper()
	reloads := func() float64 { return r.Sum("tierway_config_reloads_total") }
	before := reloads()
	maps.Copy(r.Config, overrides)
	if err := os.WriteFile(r.File, []byte(r.Config.String()), 0o600); err != nil {
		r.T.Fatal(err)
	}
	r.Signal(syscall.SIGHUP)
	Eventually(r.T, func() error {
		if reloads() <= before {
			return errors.New("the gateway has not reloaded: " + r.Log())
		}
		return nil
	})
	if n := r.Sum("tierway_config_reloads_total", `result="rejected"`); n != 0 {
		r.T.Fatalf("%v reloads were rejected: %s", n, r.Log())
	}
}

// Metrics scrapes the address that serves the metrics.
func (r *Rig) Metrics() (gateway.Samples, error) {
	return scrape(EnvironmentOf(r.T).Client, "http://"+r.MetricsAt+"/metrics")
}

// Sum scrapes the metrics and returns the sum of a metric's series, as [gateway.Samples.Sum]
// does; -1 if the scrape fails.
func (r *Rig) Sum(name string, pairs ...string) float64 {
	m, err := r.Metrics()
	if err != nil {
		return -1
	}
	return m.Sum(name, pairs...)
}

// Goroutines returns the number of goroutines in the gateway's process. It returns 0 in a bubble, which fails unless
// all goroutines end.
func (r *Rig) Goroutines() (n float64) {
	r.T.Helper()
	if EnvironmentOf(r.T).Virtual {
		return 0
	}
	Eventually(r.T, func() error {
		m, err := r.Metrics()
		n = m.Sum("go_goroutines")
		return err
	})
	return n
}

// WaitUntilIdle is WaitUntilIdleIn for the rig's gateway.
func (r *Rig) WaitUntilIdle() { r.T.Helper(); r.WaitUntilIdleIn(r.Process) }

// WaitUntilIdleIn waits until nothing is in flight or queued in a gateway and the engines. It
// checks that each started request has ended and was counted once. A gateway that has exited is
// idle.
func (r *Rig) WaitUntilIdleIn(p *gateway.Process) {
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
		if err := checkIdle(m); err != nil {
			return err
		}
		for _, w := range r.Workers {
			if e, c := w.Engine.Stats().Open, w.Handler.Stats().Open; e != 0 || c != 0 {
				return fmt.Errorf("%s still serves %d requests; its fault handler has %d", w.Name, e, c)
			}
		}
		return nil
	})
}

// checkIdle returns an error for the first series that shows a request in the gateway.
func checkIdle(m gateway.Samples) error {
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
		return errors.New("the metrics have no tierway_queue_depth")
	}
	if began, ended := m.Sum("tierway_requests_started_total"), m.Sum("tierway_requests_total"); began != ended {
		return fmt.Errorf("%v requests started and %v ended", began, ended)
	}
	in := m.Sum("tierway_queue_entered_total")
	out := m.Sum("tierway_queue_dispatched_total") + m.Sum("tierway_queue_abandoned_total") +
		m.Sum("tierway_queue_expired_total") + m.Sum("tierway_queue_moved_total")
	if in != out {
		return fmt.Errorf("%v requests entered a queue and %v were dispatched, abandoned, expired or moved", in, out)
	}
	return nil
}
