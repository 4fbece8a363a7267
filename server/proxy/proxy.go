// Package proxy is the data plane: gin's router, and the way of a request from the stages of
// package intake through the queue to a worker and back.
package proxy

import (
	"hash/maphash"
	"io"
	"log/slog"
	"sync/atomic"

	"tierway/config"
	"tierway/decisions"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/telemetry"
)

// Proxy serves the data plane. It is safe for concurrent use.
type Proxy struct {
	control *control.Control
	log     *slog.Logger
	metrics *telemetry.Metrics
	traces  *telemetry.Traces // nil without
	records records
	rand    func() uint64
	seed    maphash.Seed // of the hashes by which failed requests are compared

	intake  *intake.Intake
	budget  *retryBudget
	scratch *scratch

	inflight    atomic.Int64
	flying      flying
	exhaustions seldom // connections that were not made

	draining atomic.Bool
	isCut    atomic.Bool // the drain timeout has passed
}

// Options is what a Proxy is made from.
type Options struct {
	Control *control.Control
	// Access gets one JSON line for each request, in one Write that must not block. Nil: no
	// line is written.
	Access       io.Writer
	Decisions    *decisions.Log
	DecisionFile *decisions.File   // nil without
	Traces       *telemetry.Traces // nil without
	Name         string            // of this process among gateways
	Log          *slog.Logger
	Metrics      *telemetry.Metrics
	Rand         func() uint64 // uniform; safe for concurrent use
}

// New makes a data plane before a Control that has nothing in force yet.
func New(o Options) *Proxy {
	px := &Proxy{control: o.Control, log: o.Log, metrics: o.Metrics, traces: o.Traces, rand: o.Rand,
		records: records{log: o.Decisions, file: o.DecisionFile}, seed: maphash.MakeSeed(), budget: newRetryBudget(), scratch: newScratch()}
	px.intake = intake.New(intake.Options{Control: o.Control, Metrics: o.Metrics, Name: o.Name, Rand: o.Rand})
	if o.Access != nil {
		px.records.access = decisions.NewAccessLog(o.Access)
	}
	o.Metrics.SetRequestLabels(control.Dialects, control.Outcomes)
	telemetry.Observe(o.Metrics, func() telemetry.OldestRequest { return telemetry.OldestRequest{Age: px.flying.oldest()} })
	return px
}

// Configure puts the bounds of a configuration in force.
func (px *Proxy) Configure(f *config.File) {
	px.records.configure(f)
	px.traces.SetSample(f.Telemetry.Sample)
	px.budget.configure(f.Retry.Budget)
	px.intake.Configure(f)
}

// Drain makes the answers of requests close their connections.
func (px *Proxy) Drain() { px.draining.Store(true) }

// Draining reports whether Drain was called.
func (px *Proxy) Draining() bool { return px.draining.Load() }

// Cut says that the requests that are cut from now on are cut by the drain's timeout.
func (px *Proxy) Cut() { px.isCut.Store(true) }

// Inflight returns the requests between their first byte and their last.
func (px *Proxy) Inflight() int64 { return px.inflight.Load() }

// BodyMemory returns the memory of request bodies.
func (px *Proxy) BodyMemory() telemetry.BodyMemory {
	held, limit := px.intake.BodyMemory()
	return telemetry.BodyMemory{Used: held, Limit: limit}
}

// Remembered returns how many chats and stored responses the data plane knows the way of.
func (px *Proxy) Remembered() (chats, responses int) {
	return px.intake.Chats().Len(), px.intake.StoredCount()
}
