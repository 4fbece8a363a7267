package sim

import (
	"math"
	"slices"
	"time"

	"tierway/routing"
)

// Sessions are chats of many tenants that grow turn by turn: the traffic of the reference
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

	// The first tenant's weight, unless 0, and the tokens of its system prompt.
	HotWeight float64
	HotSystem int64
	// Burst is the mean number of chats of one tenant that begin within 0.2 s; 0: chats begin
	// independently.
	Burst float64
	// Agents makes chats long: up to 40 turns with the outputs of tools, and long system prompts.
	Agents bool
}

// chatShape is the distributions of a chat.
type chatShape struct {
	system, systemSigma float64 // median of tokens and standard deviation of their logarithm, as below
	user, userSigma     float64
	userMost            float64
	answer, answerSigma float64
	documents           float64 // chance of a document in a turn
	next                float64 // chance of another turn after each answer
	turns               int     // at most
}

const (
	sessionTenants = 40
	sessionPause   = 8 * time.Second
	// leastUser and leastAnswer are added: the chat template's own tokens.
	leastUser, leastAnswer = 10, 5
	// The tokens of a document.
	documentLeast, documentMore = 8000, 8000
	// burstSpan is the time within which the chats of a burst begin.
	burstSpan = 200 * time.Millisecond
)

// chatOfPeople is a chat of a person, with 3.87 turns on average; chatOfAgents has 17.
func chatOfPeople() chatShape {
	return chatShape{
		system: 2500, systemSigma: 0.7, user: 150, userSigma: 1, userMost: math.Inf(1),
		answer: 180, answerSigma: 0.7, documents: 0.06, next: 0.75, turns: 12,
	}
}

func chatOfAgents() chatShape {
	return chatShape{
		system: 7500, systemSigma: 0.7, user: 900, userSigma: 1, userMost: 16_000,
		answer: 120, answerSigma: 0.8, next: 0.95, turns: 40,
	}
}

// userTokens and answerTokens draw the lengths of one turn.
func (s *chatShape) userTokens(d *RNG) int64 {
	user := min(s.userMost, leastUser+d.Lognormal(s.user, s.userSigma))
	if d.Unit() < s.documents {
		user = documentLeast + documentMore*d.Unit()
	}
	return int64(math.Ceil(user))
}

func (s *chatShape) answerTokens(d *RNG) int64 {
	return int64(math.Ceil(leastAnswer + d.Lognormal(s.answer, s.answerSigma)))
}

// sessions is a load of chats in progress.
type sessions struct {
	Sessions
	simulation *Simulation
	rng        *RNG
	shape      chatShape
	shares     []float64 // sums of the tenants' weights
	systems    [][]routing.Block
}

// chat is one chat in progress.
type chat struct {
	load    *sessions
	rng     *RNG
	request Request // last turn; its chain is the whole chat
	turns   int
}

// Start plans the first chat; each plans the next.
func (s Sessions) Start(w *Simulation, d *RNG) {
	if s.Tenants == 0 {
		s.Tenants = sessionTenants
	}
	if s.Pause == 0 {
		s.Pause = sessionPause
	}
	l := &sessions{Sessions: s, simulation: w, rng: d, shape: chatOfPeople(), shares: make([]float64, s.Tenants),
		systems: make([][]routing.Block, s.Tenants)}
	if s.Agents {
		l.shape = chatOfAgents()
	}
	sum := 0.0
	for k := range l.systems {
		weight, tokens := 1/float64(k+1), int64(0)
		seed := d.Uint64()
		tokens = int64(math.Ceil(d.Lognormal(l.shape.system, l.shape.systemSigma)))
		if k == 0 && s.HotWeight > 0 {
			weight, tokens = s.HotWeight, s.HotSystem
		}
		sum += weight
		l.shares[k] = sum
		l.systems[k] = Extend(nil, seed, tokens)
	}
	mean := time.Duration(float64(time.Second) / s.Rate)
	if s.Burst > 0 {
		mean = time.Duration(float64(mean) * s.Burst)
	}
	var arrive func()
	arrive = func() {
		if w.Now() > s.Until {
			return
		}
		k, _ := slices.BinarySearch(l.shares, d.Unit()*sum)
		first := l.newChat(k)
		if s.Burst > 0 {
			l.burst(k)
		}
		w.After(d.Exp(mean), arrive)
		first.turn()
	}
	w.At(d.Exp(mean), arrive)
}

// burst plans the other chats of a burst. Their number has a geometric distribution.
func (s *sessions) burst(k int) {
	for s.rng.Unit() < 1-1/s.Burst {
		s.simulation.After(time.Duration(s.rng.Unit()*float64(burstSpan)), s.newChat(k).turn)
	}
}

// newChat returns a chat of that tenant.
func (s *sessions) newChat(k int) *chat {
	c := &chat{load: s, rng: NewRNG(s.rng.Uint64())}
	tenant := s.Tenant
	if tenant == "" {
		tenant = tenantName(k)
	}
	c.request = Request{Kind: "chat", Tenant: tenant, Class: s.Class, Chain: slices.Clone(s.systems[k]), Done: c.answered}
	return c
}

// tenantName returns the name of a tenant by its rank.
func tenantName(k int) string { return "tenant-" + string(rune('0'+k/10)) + string(rune('0'+k%10)) }

// turn submits the next turn.
func (c *chat) turn() {
	d, shape, w := c.rng, &c.load.shape, c.load.simulation
	user := shape.userTokens(d)
	answer := shape.answerTokens(d)
	r := &c.request
	r.Chain = appendBlocks(r.Chain, d.Uint64(), user)
	r.PromptTokens = int64(len(r.Chain)) * BlockTokens
	if c.turns == 0 {
		r.Prefix = r.Chain[len(r.Chain)-1].Hash
	}
	r.Chain = appendBlocks(r.Chain, d.Uint64(), answer)
	r.OutputTokens = answer
	r.numbers = w.numbers.appendNumbers(r.numbers, r.Chain)
	c.turns++
	w.Submit(*r)
}

// answered plans the next turn, if there is one.
func (c *chat) answered(rec *Record) {
	w := c.load.simulation
	more, pause := c.rng.Unit() < c.load.shape.next, c.rng.Exp(c.load.Pause)
	if rec.Err != nil || !more || c.turns >= c.load.shape.turns || w.Now()+pause > c.load.Until {
		return
	}
	w.After(pause, c.turn)
}
