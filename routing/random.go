package routing

// random gives every worker the same probability, regardless of its configured weight. A worker with a
// lower effective weight has a lower probability by the same share. It has no memory.
type random struct{}

func (random) Name() string { return "random" }

// Pick draws by the request's random number only.
func (random) Pick(r *Request, ws []View) (int, Reason) {
	total := 0.0
	for i := range ws {
		total += ws[i].weightShare()
	}
	left, drawn := Unit(r.Rand)*total, 0
	for drawn < len(ws)-1 && left >= ws[drawn].weightShare() {
		left -= ws[drawn].weightShare()
		drawn++
	}
	r.excludeUndrawn(drawn, drawn)
	return drawn, ReasonRandom
}
