// Package intake is the first half of the data plane: the table of routes, and the stages that
// a request passes before it waits for a worker. Authenticate finds its caller, Read reads its
// body and prompt, Resolve finds its tier or pool, Charge asks the limits of its caller, and
// Gather collects the facts by which a worker is picked. A request that matches no route passes
// FindPool and ReadPassed in place of Read and Resolve. Locate finds the worker that holds a
// stored response.
package intake

import (
	"hash/maphash"
	"sync"

	"tierway/config"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tiers"
)

// Intake holds what the stages of all requests share. It is safe for concurrent use.
type Intake struct {
	control *control.Control
	metrics *telemetry.Metrics
	rand    func() uint64
	name    string       // of this process among gateways, as Via headers have it
	seed    maphash.Seed // of the hashes by which chats are known
	bodies  bodyBudget
	prompts sync.Pool // of *Prompt
	chats   *tiers.Chats
	stored  *storedResponses
}

// Options is what an Intake is made from.
type Options struct {
	Control *control.Control
	Metrics *telemetry.Metrics
	Name    string        // of this process among gateways
	Rand    func() uint64 // uniform; safe for concurrent use
}

// New makes an Intake. Configure sets its bounds.
func New(o Options) *Intake {
	return &Intake{control: o.Control, metrics: o.Metrics, name: o.Name, rand: o.Rand, seed: maphash.MakeSeed(), stored: newStoredResponses(maxStoredResponses),
		prompts: sync.Pool{New: func() any { return new(Prompt) }}, chats: tiers.NewChats(tiers.MaxChats)}
}

// Configure puts the bounds of a configuration in force.
func (it *Intake) Configure(f *config.File) {
	it.bodies.configure(int64(f.MaxBufferedBytes), int64(f.MaxBodyBytes))
}

// BodyMemory returns the bytes that bodies hold, and their bound.
func (it *Intake) BodyMemory() (held, limit int64) { return it.bodies.sizes() }

// Memory is memory for bodies of a tenant, of which nothing is held yet. Its owner releases it.
func (it *Intake) Memory(tenant string) BodyMemory {
	return BodyMemory{budget: &it.bodies, tenant: tenant}
}

// Chats are the chats that stay at their tier.
func (it *Intake) Chats() *tiers.Chats { return it.chats }
