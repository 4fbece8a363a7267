package rig

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"tierway/engines"
	"tierway/engines/chaos"
)

// Worker is one engine behind a handler of faults, which has none at first. It has an
// address of its own from the start.
type Worker struct {
	*chaos.Handler
	Engine   *engines.Engine
	Recorder *chaos.Recorder // of what the engine gets
	Server   *engines.Server // nil before Listen
	Front    http.Handler    // serves the requests; nil: the handler of faults
	Name     string
	Addr     string

	t *testing.T
}

// NewWorker makes an engine that does not listen yet and records its requests. It
// has 4,096 slots unless c says otherwise.
func NewWorker(t *testing.T, name string, c engines.Config) *Worker {
	t.Helper()
	c.Name, c.Model = name, "sim"
	if c.Slots == 0 {
		c.Slots = 4096 // the gateway's bounds are the only ones
	}
	w := &Worker{Engine: engines.New(c), Name: c.Name, Addr: free(t, name), t: t}
	w.Recorder = chaos.Record(w.Engine)
	w.Handler = chaos.New(w.Recorder)
	t.Cleanup(w.Engine.Close)
	t.Cleanup(w.Stop)
	return w
}

// free returns a free address: for w0, w1, … each on a loopback address of its own.
// On 127.0.0.1 a connection of another process could take the port of a worker that
// is stopped.
func free(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", 2+name[len(name)-1]))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0") // loopback may have one address only
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Listen makes the worker serve on its address, after Stop again.
func (w *Worker) Listen() *Worker {
	w.t.Helper()
	if w.Front == nil {
		w.Front = w.Handler
	}
	Eventually(w.t, func() (err error) {
		w.Server, err = engines.Start(w.Front, w.Addr)
		return err
	})
	return w
}

// Stop resets all connections, as the death of the process would.
func (w *Worker) Stop() {
	if w.Server != nil {
		w.Server.Kill()
	}
}

// URL is the worker's in a configuration.
func (w *Worker) URL() string { return "http://" + w.Addr }

// Tier is one tier of a configuration that serves all dialects, with further keys
// of each worker and of the tier in YAML, which may be empty.
func Tier(name, perWorker, perTier string, workers ...*Worker) string {
	var list []string
	for _, w := range workers {
		list = append(list, fmt.Sprintf("{ name: %s, url: %q, %s }", w.Name, w.URL(), perWorker))
	}
	if !strings.Contains(perTier, "model:") {
		perTier = "model: sim, " + perTier
	}
	const dialects = "[chat, completions, responses, messages, embeddings, rerank, score, tokenize, moderations, " +
		"images, audio]"
	return fmt.Sprintf("{ name: %s, serves: %s, workers: [ %s ], %s }", name, dialects, strings.Join(list, ", "), perTier)
}
