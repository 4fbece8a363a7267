package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// answerText is the answer of every engine unless a test sets a script.
const answerText = "The quick brown fox jumps over the lazy dog, and nobody minds at all."

func TestMain(m *testing.M) {
	if addr := os.Getenv(engineVariable); addr != "" {
		runEngine(addr)
	}
	os.Exit(bubble.Main(m))
}

// chaosRig is a rig with the policy round_robin, which starts with w0.
type chaosRig struct{ *rig.Rig }

// newRig starts n workers and a gateway in front of them. own overrides its settings; env is added
// to its environment.
func newRig(t *testing.T, n int, own rig.Settings, c engines.Config, env ...string) *chaosRig {
	t.Helper()
	r := &chaosRig{rig.New(t, n, withScript(c), rig.Settings{
		"admin":  `{}`,
		"auth":   `{ required: false }`,
		"hosts":  `[ gateway ]`,
		"policy": `{ name: round_robin }`,
		"store":  `{ sql: "" }`,
		// The rules take a third of the time of a start, and the requests name their model.
		"classifier": `{ preset: none }`,
		"timeouts":   `{ first_byte: 30s, idle: 30s }`,
	})}
	r.Listen().Serve(own, env...)
	return r
}

// rigOf returns a rig for a gateway that the test has started.
func rigOf(t *testing.T, p *gateway.Process) *chaosRig {
	t.Helper()
	r := &chaosRig{rig.New(t, 0, engines.Config{}, nil)}
	r.Attach(p)
	return r
}

// withScript returns an engine's configuration with a script that answers answerText, unless it
// has one. A token takes a millisecond, unless the configuration has another time: the gateway has
// read an event before a fault that follows, which could destroy what is unread.
func withScript(c engines.Config) engines.Config {
	if c.Script == nil {
		c.Script = func(string, []byte) engines.Script { return engines.Script{Text: answerText} }
	}
	if c.PerToken == 0 {
		c.PerToken = time.Millisecond
	}
	return c
}

// newWorker starts one engine.
func newWorker(t *testing.T, name string, c engines.Config) *rig.Worker {
	t.Helper()
	return newEngine(t, name, c).Listen()
}

// newEngine makes an engine that does not listen yet.
func newEngine(t *testing.T, name string, c engines.Config) *rig.Worker {
	t.Helper()
	return rig.NewWorker(t, name, withScript(c))
}

// tiers returns the setting tiers: one tier named small that serves all dialects.
func tiers(ws []*rig.Worker) string { return "[ " + rig.Tier("small", "", "", ws...) + " ]" }

// hits returns how many requests the workers received.
func (r *chaosRig) hits() (n int64) {
	for _, w := range r.Workers {
		n += w.Stats().Requests
	}
	return n
}

// cancelled returns how many requests were cancelled at the workers.
func (r *chaosRig) cancelled() (n int64) {
	for _, w := range r.Workers {
		n += w.Stats().Cancelled
	}
	return n
}

// try sends a request and reads the response, which may be cut off. It returns an error if no
// response came or it did not end. It may be called on any goroutine.
func (r *chaosRig) try(req *http.Request) (rig.Reply, error) {
	ctx, cancel := context.WithTimeout(req.Context(), rig.Patience)
	defer cancel()
	got := r.Send(req.WithContext(ctx))
	switch {
	case got.Status == 0:
		return got, got.Err
	case ctx.Err() != nil:
		return got, fmt.Errorf("the response did not end after %q: %w", got.Body, ctx.Err())
	}
	return got, nil
}

// do sends a request and reads the response. The test fails if none comes.
func (r *chaosRig) do(method, path, body string, headers ...string) rig.Reply {
	r.T.Helper()
	got, err := r.try(r.Request(context.Background(), method, path, body, headers...))
	if err != nil {
		r.T.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

func (r *chaosRig) post(path, body string, headers ...string) rig.Reply {
	r.T.Helper()
	return r.do(http.MethodPost, path, body, headers...)
}

// stream posts a request and returns when the header of the response has arrived.
func (r *chaosRig) stream(path, body string, headers ...string) *rig.Stream {
	r.T.Helper()
	return r.Open(r.Request(context.Background(), http.MethodPost, path, body, headers...))
}
