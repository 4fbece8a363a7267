package rig

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tierway/engines"
	"tierway/engines/chaos"
)

// Worker is one engine behind a handler that can inject faults; at first it injects none. Its
// address is fixed from the start.
type Worker struct {
	*chaos.Handler
	Engine   *engines.Engine
	Recorder *chaos.Recorder // records the requests that the engine receives
	Server   *engines.Server // nil before Listen
	Front    http.Handler    // serves the requests; nil: the fault handler
	Name     string
	Addr     string

	t *testing.T
}

// NewWorker makes an engine that does not listen yet and records its requests. Without c.Slots
// it has 4,096 slots.
func NewWorker(t *testing.T, name string, c engines.Config) *Worker {
	t.Helper()
	c.Name, c.Model = name, "sim"
	if c.Slots == 0 {
		c.Slots = 4096 // only the gateway's own bounds must take effect
	}
	w := &Worker{Engine: engines.New(c), Name: c.Name, Addr: Address(t), t: t}
	w.Recorder = chaos.Record(w.Engine)
	w.Handler = chaos.New(w.Recorder)
	t.Cleanup(w.Engine.Close)
	t.Cleanup(w.Stop)
	return w
}

// Listen starts the worker on its address. It may be called again after Stop.
func (w *Worker) Listen() *Worker {
	w.t.Helper()
	if w.Front == nil {
		w.Front = w.Handler
	}
	Eventually(w.t, func() error {
		l, err := EnvironmentOf(w.t).Listen("tcp", w.Addr)
		if err == nil {
			w.Server = engines.Serve(w.Front, l)
		}
		return err
	})
	return w
}

// Stop resets all connections and closes the port, as a crash of the engine would.
func (w *Worker) Stop() {
	if w.Server != nil {
		w.Server.Kill()
	}
}

// URL returns the worker's URL for a configuration.
func (w *Worker) URL() string { return "http://" + w.Addr }

// Tier returns one tier of a configuration. It serves all dialects. perWorker and perTier are
// further keys of each worker and of the tier in YAML and may be empty.
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
