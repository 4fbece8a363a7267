package sim

import "time"

// Mode is a kind of traffic with the engines that it is measured on. Its loads have one
// parameter, a rate.
type Mode struct {
	Name  string
	Doc   string    // one sentence
	Unit  string    // of the rate
	Rates []float64 // the rates of the reference figures, from light load to overload
	// Loads returns the mode's loads at a rate.
	Loads func(rate float64) []Load
	// Engines changes default engines into those of the mode; nil leaves them.
	Engines func(all []Engine)
}

const (
	// modeUntil is the end of a mode's arrivals. Requests before modeFrom find empty caches and
	// are not counted, and the simulation ends at modeEnd.
	modeUntil = 300 * time.Second
	modeFrom  = time.Minute
	modeEnd   = 600 * time.Second
	// singleDocuments is the share of long prompts among single requests.
	singleDocuments = 0.154
	// mixedChats is the share of chats among arrivals with which half of the requests belong to chats.
	mixedChats = 0.205
)

// Modes returns the kinds of traffic of the reference figures: together 29 cells.
func Modes() []Mode {
	const chats, requests = "chats/s", "requests/s"
	base := func(s Sessions) func(float64) []Load {
		return func(rate float64) []Load {
			s.Rate, s.Until = rate, modeUntil
			return []Load{s}
		}
	}
	return []Mode{
		{Name: "base", Doc: "Chats of 40 tenants with their own system prompts.", Unit: chats,
			Rates: []float64{3, 5, 7, 8, 10}, Loads: base(Sessions{})},
		{Name: "hot", Doc: "One tenant has 90 % of the chats, with a long system prompt.", Unit: chats,
			Rates: []float64{4, 7, 9}, Loads: base(Sessions{HotWeight: 30, HotSystem: 6000})},
		{Name: "hetero", Doc: "As base; three of eight engines prefill at half the speed.", Unit: chats,
			Rates: []float64{3, 5, 6}, Loads: base(Sessions{}), Engines: halveSomeRates},
		{Name: "nosharing", Doc: "Single requests without a common prefix.", Unit: requests,
			Rates: []float64{15, 20, 25, 28, 32}, Loads: func(rate float64) []Load { return []Load{singles(rate)} }},
		{Name: "mixed", Doc: "Chats and single requests, half of the requests each.", Unit: "arrivals/s",
			Rates: []float64{6, 9, 12, 15, 17}, Loads: func(rate float64) []Load {
				return []Load{Sessions{Rate: mixedChats * rate, Until: modeUntil}, singles((1 - mixedChats) * rate)}
			}},
		{Name: "agentic", Doc: "Agents of ten tenants: up to 40 turns, two seconds apart.", Unit: chats,
			Rates: []float64{0.3, 0.45, 0.6, 0.9},
			Loads: base(Sessions{Tenants: 10, Pause: 2 * time.Second, Agents: true})},
		{Name: "burst", Doc: "Chats begin in bursts of eight on average, of one tenant each.", Unit: chats,
			Rates: []float64{3, 5, 7, 8}, Loads: base(Sessions{Burst: 8})},
	}
}

// singles returns single requests without a common prefix.
func singles(rate float64) Load {
	shape := chatOfPeople()
	shape.documents = singleDocuments
	return Poisson{Rate: rate, Until: modeUntil, Make: func(d *RNG, _ int) Request {
		r := Request{Kind: "single", Tenant: "single"}
		r.Chain = Extend(nil, d.Uint64(), shape.userTokens(d))
		r.PromptTokens = int64(len(r.Chain)) * BlockTokens
		r.Prefix = r.Chain[len(r.Chain)-1].Hash
		r.OutputTokens = shape.answerTokens(d)
		r.Chain = appendBlocks(r.Chain, d.Uint64(), r.OutputTokens)
		return r
	}}
}

// halveSomeRates halves the rates of three of each eight engines, spread over the order.
func halveSomeRates(all []Engine) {
	for i := range all {
		if i*3/8 != (i+1)*3/8 {
			all[i].Rate = all[i].withDefaults().Rate / 2
		}
	}
}

// Run runs the mode at a rate on the engines of the config, changed by Mode.Engines. It returns the figures
// of the requests after modeFrom.
func (m *Mode) Run(c Config, rate float64) (Figures, error) {
	c.Engines = append([]Engine(nil), c.Engines...)
	if m.Engines != nil {
		m.Engines(c.Engines)
	}
	c.Loads, c.Until = m.Loads(rate), modeEnd
	r, err := Run(c)
	if err != nil {
		return Figures{}, err
	}
	return r.Figures(modeFrom), nil
}
