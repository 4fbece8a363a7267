package sim

import (
	"math"
	"slices"
	"time"

	"tierway/routing"
)

// Sessions is chats of many tenants that grow turn by turn: the traffic of the reference
// figures. Chats of a tenant start with its system prompt. The prompt of a turn is the whole
// chat so far plus the new text. The next turn comes some seconds after the answer. Each chat
// has its own RNG, so that all policies see the same chats.
type Sessions struct {
	Rate    float64       // new chats per second
	Until   time.Duration // no turn starts later
	Tenants int           // weight 1/k each, each with its own system prompt; 0: 40
	Tenant  string        // tenant of all chats for the gateway; empty: each tenant's own
	Class   int
	Pause   time.Duration // mean time from an answer to the next turn; 0: 8 s
}

const (
	sessionTenants = 40
	sessionPause   = 8 * time.Second
	// The chance of another turn after each answer, and the most turns of a chat:
	// 3.87 turns on average.
	continueChance, maxTurns = 0.75, 12
	// Medians of tokens and standard deviations of
	// their logarithms.
	systemMedian, systemSigma = 2500, 0.7
	userMedian, userSigma     = 150, 1.0
	answerMedian, answerSigma = 180, 0.7
	// leastUser and leastAnswer are added: the chat template's own tokens.
	leastUser, leastAnswer = 10, 5
	// The chance that a turn has a document, and the document's tokens.
	documentChance, documentLeast, documentMore = 0.06, 8000, 8000
)

// chat is one chat in progress.
type chat struct {
	load    *Sessions
	world   *World
	rng     *RNG
	request Request // last turn; its chain is the whole chat
	turns   int
}

// Start plans the first chat; each plans the next.
func (s Sessions) Start(w *World, d *RNG) {
	if s.Tenants == 0 {
		s.Tenants = sessionTenants
	}
	if s.Pause == 0 {
		s.Pause = sessionPause
	}
	shares, sum := make([]float64, s.Tenants), 0.0
	systems := make([][]routing.Block, s.Tenants)
	for k := range systems {
		sum += 1 / float64(k+1)
		shares[k] = sum
		systems[k] = Extend(nil, d.Uint64(), int64(math.Ceil(d.Lognormal(systemMedian, systemSigma))))
	}
	mean := time.Duration(float64(time.Second) / s.Rate)
	var arrive func()
	arrive = func() {
		if w.Now() > s.Until {
			return
		}
		k, _ := slices.BinarySearch(shares, d.Unit()*sum)
		c := &chat{load: &s, world: w, rng: NewRNG(d.Uint64())}
		tenant := s.Tenant
		if tenant == "" {
			tenant = tenantName(k)
		}
		c.request = Request{Kind: "chat", Tenant: tenant, Class: s.Class, Chain: systems[k], Done: c.answered}
		w.After(d.Exp(mean), arrive)
		c.turn()
	}
	w.At(d.Exp(mean), arrive)
}

// tenantName returns the name of a tenant by its rank.
func tenantName(k int) string { return "tenant-" + string(rune('0'+k/10)) + string(rune('0'+k%10)) }

// turn submits the next turn.
func (c *chat) turn() {
	d := c.rng
	user := leastUser + d.Lognormal(userMedian, userSigma)
	if d.Unit() < documentChance {
		user = documentLeast + documentMore*d.Unit()
	}
	answer := int64(math.Ceil(leastAnswer + d.Lognormal(answerMedian, answerSigma)))
	r := &c.request
	if c.turns == 0 {
		r.Chain = slices.Clone(r.Chain) // the tenant's system prompt
	}
	r.Chain = appendBlocks(r.Chain, d.Uint64(), int64(math.Ceil(user)))
	r.PromptTokens = int64(len(r.Chain)) * BlockTokens
	if c.turns == 0 {
		r.Prefix = r.Chain[len(r.Chain)-1].Hash
	}
	r.Chain = appendBlocks(r.Chain, d.Uint64(), answer)
	r.OutputTokens = answer
	r.numbers = c.world.numbers.appendNumbers(r.numbers, r.Chain)
	c.turns++
	c.world.Submit(*r)
}

// answered plans the next turn, if there is one.
func (c *chat) answered(rec *Record) {
	more, pause := c.rng.Unit() < continueChance, c.rng.Exp(c.load.Pause)
	if rec.Err != nil || !more || c.turns >= maxTurns || c.world.Now()+pause > c.load.Until {
		return
	}
	c.world.After(pause, c.turn)
}
