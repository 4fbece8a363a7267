package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/engines"
)

const (
	// patience bounds every wait that has no bound of its own: far more than
	// anything takes, on a machine that is busy with other tests.
	patience = 30 * time.Second
	// pace is how often a condition is looked at.
	pace = 5 * time.Millisecond
	// whole is the TIERWAY_SOAK from which on all rounds are done.
	whole = time.Minute

	// The keys of the configurations: the admin plane's and the tenant's.
	adminKey  = "the-admin-key-of-these-tests"
	tenantKey = "the-tenant-key-of-these-tests"
)

// soakTime is how long a test's load lasts.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	v := os.Getenv("TIERWAY_SOAK")
	if v == "" {
		return 2 * time.Second
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("TIERWAY_SOAK is %q: %v", v, err)
	}
	return d
}

// rounds is all when the soak is whole, else few.
func rounds(t *testing.T, few, all int) int {
	t.Helper()
	if soakTime(t) >= whole {
		return all
	}
	return few
}

// settings is a configuration: each top-level key with its value in YAML.
type settings map[string]string

// String writes the file.
func (s settings) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s: %s\n", key, s[key])
	}
	return b.String()
}

// with returns the settings with others over them.
func (s settings) with(own settings) settings {
	all := maps.Clone(s)
	maps.Copy(all, own)
	return all
}

// worker is one engine that listens.
type worker struct {
	*engines.Engine
	server *engines.Server
	name   string
}

// rig is engines, the gateways before them and a client of these.
type rig struct {
	t        *testing.T
	workers  []*worker
	gateways []*gateway.Process
	client   *http.Client
	ids      atomic.Int64
}

// What engines say: to a whole answer, and to a stream.
const (
	answerText = "The quick brown fox jumps over the lazy dog."
	streamText = answerText + " " + answerText + " " + answerText
)

// says makes an engine answer a stream with streamText, anything else with
// answerText.
func says(_ string, body []byte) engines.Script {
	if strings.Contains(string(body), `"stream":true`) {
		return engines.Script{Text: streamText}
	}
	return engines.Script{Text: answerText}
}

// newRig starts n engines named w0, w1, …; gateways are started by serve.
func newRig(t *testing.T, n int, c engines.Config) *rig {
	t.Helper()
	r := &rig{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}}}
	if c.Script == nil {
		c.Script = says
	}
	if c.Slots == 0 {
		c.Slots = 1024 // nobody waits unless a test is about that
	}
	for i := range n {
		c.Name, c.Model = fmt.Sprintf("w%d", i), "sim"
		w := &worker{Engine: engines.New(c), name: c.Name}
		t.Cleanup(w.Close)
		r.workers = append(r.workers, w)
		w.listen(t, haven(i))
		t.Cleanup(func() {
			if err := w.server.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// listen makes the worker serve on an address.
func (w *worker) listen(t *testing.T, addr string) {
	t.Helper()
	eventually(t, patience, func() (err error) {
		w.server, err = engines.Start(w.Engine, addr)
		return err
	})
}

// haven is an address of the i-th worker's own: on 127.0.0.1 a connection of
// somebody else could take its port while it is dead.
func haven(i int) string {
	own := fmt.Sprintf("127.0.0.%d:0", 2+i)
	l, err := net.Listen("tcp", own)
	if err != nil {
		return "127.0.0.1:0" // where loopback is one address only
	}
	l.Close()
	return own
}

// base is the configuration that a test's own goes over: one tier, named small,
// that serves everything, and one tenant, named app, with tenantKey.
func (r *rig) base() settings {
	return settings{
		"admin":    `{ keys: [ { name: tests, sha256: ` + digest(adminKey) + ` } ] }`,
		"auth":     auth("app", ""),
		"health":   `{ path: "off" }`,
		"policy":   `{ name: round_robin }`,
		"drain":    `{ accept_grace: 1ms, timeout: 20s }`,
		"log":      `{ access: false }`,
		"timeouts": `{ first_byte: 30s, idle: 30s }`,
		"tiers":    r.tiers(),
	}
}

// tiers is a configuration's tiers: one, named small, of all workers.
func (r *rig) tiers() string {
	all := make([]int, len(r.workers))
	for i := range all {
		all[i] = i
	}
	return "[ " + r.tier("small", "sim", 1, all...) + " ]"
}

// tier is one tier of a configuration, of some of the workers.
func (r *rig) tier(name, model string, weight int, workers ...int) string {
	var list []string
	for _, i := range workers {
		list = append(list, fmt.Sprintf("{ name: %s, url: %q, weight: %d }", r.workers[i].name, r.workers[i].server.URL, weight))
	}
	return fmt.Sprintf("{ name: %s, model: %s, serves: [chat, completions, responses, messages], workers: [ %s ] }", name, model, strings.Join(list, ", "))
}

// auth is a configuration's section of that name: one tenant with tenantKey and
// with limits in YAML, if any.
func auth(tenant, limits string) string {
	if limits != "" {
		limits = ", limits: { " + limits + " }"
	}
	return "{ keys: [ { name: " + tenant + ", sha256: " + digest(tenantKey) + limits + " } ] }"
}

// stores is a configuration's section of that name; empty is without.
func stores(sql, redis string) string { return fmt.Sprintf("{ sql: %q, redis: %q }", sql, redis) }

// digest is how a configuration holds a key.
func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// serve starts one more gateway with the base configuration and a test's own,
// and returns when it can serve. When the test ends it must be quiet.
func (r *rig) serve(own settings) *gateway.Process {
	r.t.Helper()
	p := r.start(own)
	p.Ready()
	return p
}

// start is serve of a gateway that may have nothing to serve with yet.
func (r *rig) start(own settings) *gateway.Process {
	r.t.Helper()
	return r.took(gateway.StartAt(r.t, gateway.Address(r.t), gateway.Address(r.t), r.base().with(own).String()))
}

// took makes a gateway one of the rig's.
func (r *rig) took(p *gateway.Process) *gateway.Process {
	r.gateways = append(r.gateways, p)
	r.t.Cleanup(func() { r.quiet(p) })
	return p
}

// quiet waits until nothing is under way in a gateway and no row of the ledger
// waits, and checks that what was begun has ended and been counted once.
func (r *rig) quiet(p *gateway.Process) {
	r.t.Helper()
	eventually(r.t, patience, func() error {
		if !p.Alive() {
			return nil // the test has ended it
		}
		m, err := p.Metrics()
		if err != nil {
			return err
		}
		if n := m.Sum("tierway_panics_total"); n != 0 {
			return fmt.Errorf("%v handlers panicked", n)
		}
		for _, name := range []string{"tierway_inflight", "tierway_worker_inflight", "tierway_worker_pending_tokens",
			"tierway_worker_output_tokens", "tierway_ledger_spooled_rows", "tierway_ledger_dropped_rows_total"} {
			for series, v := range m {
				if strings.HasPrefix(series, name) && v != 0 {
					return fmt.Errorf("%s is %v and nobody asks any more", series, v)
				}
			}
		}
		if begun, ended := m.Sum("tierway_requests_started_total"), m.Sum("tierway_requests_total"); begun != ended {
			return fmt.Errorf("%v requests began and %v ended", begun, ended)
		}
		return nil
	})
}

// eventually waits until a condition holds, and returns how long that took.
func eventually(t *testing.T, most time.Duration, holds func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return time.Since(begin)
		}
		if time.Since(begin) > most {
			t.Fatalf("waited %v in vain: %v", most, err)
		}
		<-tick.C
	}
}

// metric waits until a series of a gateway has a value, and returns how long that
// took.
func metric(t *testing.T, p *gateway.Process, name string, want float64, most time.Duration) time.Duration {
	t.Helper()
	return eventually(t, most, func() error {
		m, err := p.Metrics()
		if err != nil {
			return err
		}
		if _, there := m[name]; !there {
			return errors.New("there is no " + name)
		}
		if got := m.Sum(name); got != want {
			return fmt.Errorf("%s is %v, not %v", name, got, want)
		}
		return nil
	})
}

// pause waits while a load goes on.
func pause(d time.Duration) { <-time.After(d) }
