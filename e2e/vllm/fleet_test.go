//go:build vllm

package vllm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"tierway/decisions"
	"tierway/e2e/gateway"
	"tierway/e2e/loopback"
	"tierway/e2e/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// portOf returns the port at the end of an address.
func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// fleet is two engines behind a gateway.
type fleet struct {
	*gateway.Process
	t       *testing.T
	engines []*engine
	seen    []outcome
}

// outcome is the result of one request through the gateway.
type outcome struct {
	name      string
	worker    string
	reason    string
	prompt    int64
	predicted int64
	cached    int64
}

// publisher returns the options of an engine that sends its events to an address at which a gateway listens. Events
// do not depend on the weights.
func publisher(t *testing.T, name, events, replay string) options {
	t.Helper()
	return options{arguments: []string{"--load-format", "dummy", "--kv-events-config", encoded(t, map[string]any{
		"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv@" + name, "endpoint": "tcp://" + events,
		"replay_endpoint": "tcp://" + loopback.Host() + ":" + replay,
	})}}
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t}
	model, events := makeModel(t), gateway.Address(t)
	var workers []string
	for _, name := range []string{"w0", "w1"} {
		replay := portOf(gateway.Address(t))
		e := newEngine(t, name, model, publisher(t, name, events, replay))
		f.engines = append(f.engines, e)
		workers = append(workers, fmt.Sprintf("{ name: %s, url: %q, kv_events: { topic: %q, replay_port: %s } }",
			name, e.url, "kv@"+name, replay))
	}
	f.Process = gateway.Start(t, rig.Settings{
		"admin":     `{ keys: [ { name: tests, sha256: ` + rig.Digest(rig.AdminKey) + ` } ] }`,
		"auth":      `{ required: false }`,
		"store":     `{ sql: "" }`,
		"drain":     `{ accept_grace: 1ms, timeout: 20s }`,
		"health":    `{ interval: 2s, timeout: 2s }`,
		"kv_events": fmt.Sprintf(`{ listen: %q }`, events),
		// The engines and the gateway share two cores.
		"policy": `{ name: kv_aware, lookup_timeout: 500ms }`,
		"tiers":  fmt.Sprintf(`[ { name: small, model: tiny, engine: vllm, workers: [ %s ] } ]`, strings.Join(workers, ", ")),
	}.String())
	for _, e := range f.engines {
		e.waitUntilReady()
	}
	f.waitForEvents()
	return f
}

// waitForEvents waits until both workers are up and their events are read. An engine that connects to
// the gateway is known from its first event on.
func (f *fleet) waitForEvents() {
	f.t.Helper()
	f.WaitUntilReady()
	for i, e := range f.engines {
		e.ask(chat("", 8, message{"user", words(i, 20)}))
	}
	rig.Within(f.t, time.Minute, func() error {
		m, err := f.Metrics()
		if err != nil {
			return err
		}
		if m.Sum("tierway_kv_events_up") != 2 || m.Sum("tierway_worker_up") != 2 {
			return errors.New("the events of a worker are not read, or it is not up")
		}
		return nil
	})
}

// settle waits until events that were published have come.
func (f *fleet) settle() { rig.Pause(f.t.Context(), 500*time.Millisecond) }

// send sends a request through the gateway and returns its outcome and its answer.
func (f *fleet) send(name, path, body string) (outcome, completion) {
	f.t.Helper()
	c, err := post(f.t.Context(), f.BaseURL+path, []byte(body))
	if err != nil {
		f.t.Fatalf("%s: %v", name, err)
	}
	o := f.outcomeOf(name, c.id)
	if o.worker != c.worker || o.cached != c.cached() {
		f.t.Errorf("%s: the record has %+v, and the answer %+v of %s", name, o, c.Usage, c.worker)
	}
	f.seen = append(f.seen, o)
	return o, c
}

// outcomeOf reads the record of a request.
func (f *fleet) outcomeOf(name, id string) (o outcome) {
	f.t.Helper()
	rig.Eventually(f.t, func() error {
		status, answer := f.Admin(http.MethodGet, "/admin/decisions/"+id, "", rig.AdminKey)
		if status != http.StatusOK {
			return fmt.Errorf("%s: status %d: %s", name, status, answer)
		}
		var d decisions.Decision
		if err := json.Unmarshal([]byte(answer), &d); err != nil {
			return err
		}
		if len(d.Attempts) == 0 {
			return fmt.Errorf("%s: no attempt in %s", name, answer)
		}
		last := d.Attempts[len(d.Attempts)-1]
		o = outcome{name, last.Worker, last.Reason, last.Usage.Prompt, last.Predicted, last.Usage.Cached}
		return nil
	})
	return o
}

// logTable logs the outcomes.
func (f *fleet) logTable() {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "request\tworker\treason\tprompt\tpredicted\tcached\t")
	for _, o := range f.seen {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t\n", o.name, o.worker, o.reason, o.prompt, o.predicted, o.cached)
	}
	w.Flush() // into memory
	f.t.Log("\n" + b.String())
}
