// Package proxy is the data plane: gin's routes, and the stages that a request passes from
// its client to a worker and back.
package proxy

import (
	"hash/maphash"
	"io"
	"log/slog"
	"sync/atomic"

	"tierway/config"
	"tierway/decisions"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tiers"
)

// Proxy serves the data plane. It is safe for concurrent use.
type Proxy struct {
	control *control.Control
	log     *slog.Logger
	metrics *telemetry.Metrics
	traces  *telemetry.Traces // nil without
	records records
	rand    func() uint64
	name    string       // of this process among gateways, as Via headers have it
	seed    maphash.Seed // of hashes that stay in the process

	budget  *control.RetryBudget
	bodies  control.BodyBudget
	stored  *control.StoredResponses
	scratch *scratch
	chats   *tiers.Chats

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
	px := &Proxy{control: o.Control, log: o.Log, metrics: o.Metrics, traces: o.Traces, rand: o.Rand, name: o.Name,
		records: records{log: o.Decisions, file: o.DecisionFile},
		seed:    maphash.MakeSeed(), budget: control.NewRetryBudget(), stored: control.NewStoredResponses(control.MaxStoredResponses),
		scratch: newScratch(), chats: tiers.NewChats(tiers.MaxChats)}
	if o.Access != nil {
		px.records.access = decisions.NewAccessLog(o.Access)
	}
	o.Metrics.Outside(control.Dialects, control.Outcomes)
	o.Metrics.ObserveOldest(px.flying.oldest)
	return px
}

// Configure puts the bounds of a configuration in force.
func (px *Proxy) Configure(f *config.File) {
	px.records.configure(f)
	px.traces.SetSample(f.Telemetry.Sample)
	px.budget.Configure(f.Retry.Budget)
	px.bodies.Configure(int64(f.MaxBufferedBytes), int64(f.MaxBodyBytes))
}

// Drain makes the answers of requests close their connections.
func (px *Proxy) Drain() { px.draining.Store(true) }

// Draining reports whether Drain was called.
func (px *Proxy) Draining() bool { return px.draining.Load() }

// Cut says that the requests that are cut from now on are cut by the drain's timeout.
func (px *Proxy) Cut() { px.isCut.Store(true) }

// Inflight returns the requests between their first byte and their last.
func (px *Proxy) Inflight() int64 { return px.inflight.Load() }

// BodyMemory returns the bytes that request bodies hold, and their bound.
func (px *Proxy) BodyMemory() (held, limit int64) { return px.bodies.Sizes() }

// Remembered returns how many chats and stored responses the data plane knows the way of.
func (px *Proxy) Remembered() (chats, responses int) { return px.chats.Len(), px.stored.Count() }
