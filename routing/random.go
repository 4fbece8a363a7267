package routing

import "math/bits"

// random gives every worker the same probability, regardless of its weight. It has no memory.
type random struct{}

func (random) Name() string { return "random" }

// Pick draws by the request's random number only.
func (random) Pick(r *Request, ws []View) (int, Reason) {
	drawn := int(below(r.Rand, uint64(len(ws))))
	r.excludeUndrawn(drawn, drawn)
	return drawn, ReasonRandom
}

// below maps a random number to a number below n.
func below(random, n uint64) uint64 {
	at, _ := bits.Mul64(random, n)
	return at
}
