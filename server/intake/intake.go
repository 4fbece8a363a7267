// Package intake is the first half of the data plane: the stages that a request passes before
// it waits for a worker. Authenticate finds its caller, Read its body and prompt, Resolve its
// tier or pool, and Charge asks the limits of its caller. A request that matches no route
// passes FindPool and ReadPassed in place of Read and Resolve.
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
	seed    maphash.Seed // of hashes that stay in the process
	bodies  BodyBudget
	prompts sync.Pool // of *Prompt
	chats   *tiers.Chats
	stored  *StoredResponses
}

// Options is what an Intake is made from.
type Options struct {
	Control *control.Control
	Metrics *telemetry.Metrics
	Name    string        // of this process among gateways
	Rand    func() uint64 // uniform; safe for concurrent use
	Seed    maphash.Seed  // of hashes that stay in the process
	Stored  *StoredResponses
}

// New makes an Intake. Configure sets its bounds.
func New(o Options) *Intake {
	return &Intake{control: o.Control, metrics: o.Metrics, name: o.Name, rand: o.Rand, seed: o.Seed, stored: o.Stored,
		prompts: sync.Pool{New: func() any { return new(Prompt) }}, chats: tiers.NewChats(tiers.MaxChats)}
}

// Configure puts the bounds of a configuration in force.
func (it *Intake) Configure(f *config.File) {
	it.bodies.Configure(int64(f.MaxBufferedBytes), int64(f.MaxBodyBytes))
}

// BodyMemory returns the bytes that bodies hold, and their bound.
func (it *Intake) BodyMemory() (held, limit int64) { return it.bodies.Sizes() }

// Memory is memory for bodies of a tenant, of which nothing is held yet. Its owner releases it.
func (it *Intake) Memory(tenant string) BodyMemory {
	return BodyMemory{Budget: &it.bodies, Tenant: tenant}
}

// Chats returns how many chats have a tier that is remembered.
func (it *Intake) Chats() int { return it.chats.Len() }
