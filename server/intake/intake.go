package intake

import (
	"hash/maphash"
	"sync"

	"tierway/config"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tiers"
)

// Intake is the state that the stages of all requests share. It is safe for concurrent use.
type Intake struct {
	control *control.Control
	metrics *telemetry.Metrics
	rand    func() uint64
	name    string       // name of this process among gateways, in Via headers
	seed    maphash.Seed // seed of the hashes that identify chats
	bodies  bodyBudget
	prompts sync.Pool // of *Prompt
	chats   *tiers.Chats
	recent  *tiers.RecentScores
	stored  *storedResponses
}

// Options are the parts of an Intake.
type Options struct {
	Control *control.Control
	Metrics *telemetry.Metrics
	Name    string        // name of this process among gateways
	Rand    func() uint64 // uniform; safe for concurrent use
}

// New returns an Intake without bounds. Call Configure before use. The stores of o.Control must not run yet.
func New(o Options) *Intake {
	it := &Intake{
		control: o.Control,
		metrics: o.Metrics,
		name:    o.Name,
		rand:    o.Rand,
		seed:    maphash.MakeSeed(),
		stored:  newStoredResponses(maxStoredResponses),
		prompts: sync.Pool{New: func() any { return new(Prompt) }},
		chats:   tiers.NewChats(tiers.MaxChats),
		recent:  tiers.NewRecentScores(tiers.MaxScoreWindows),
	}
	if shared := o.Control.Stores.Responses; shared != nil {
		shared.OnBack(it.stored.Known)
	}
	return it
}

// Configure applies the bounds of a configuration.
func (it *Intake) Configure(f *config.File) {
	it.bodies.configure(int64(f.MaxBufferedBytes), int64(f.MaxBodyBytes))
}

// BodyMemory returns the bytes that bodies have reserved, and their limit.
func (it *Intake) BodyMemory() (reserved, limit int64) { return it.bodies.sizes() }

// Memory returns an empty reservation for bodies of a tenant. The caller must release it.
func (it *Intake) Memory(tenant string) BodyMemory {
	return BodyMemory{budget: &it.bodies, tenant: tenant}
}

// Chats returns the chats that stay at their tier.
func (it *Intake) Chats() *tiers.Chats { return it.chats }

// AddScore adds the score of an admitted request to its window, for the thresholds of classifier.share. A request that
// generates no text, such as one that counts tokens, adds none. Call it once for each request.
func (it *Intake) AddScore(in *Inbound, res *Resolution) {
	if in.Dialect.Generates() && !in.counts {
		it.recent.Add(res.Score)
	}
}
