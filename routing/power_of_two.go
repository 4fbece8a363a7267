package routing

// powerOfTwo draws two workers and picks the less loaded one. The result is nearly as even as a
// comparison of all workers, and several gateways do not all choose the same one. It has no memory.
type powerOfTwo struct{}

func (powerOfTwo) Name() string { return "power_of_two" }

// Pick draws two distinct workers with probabilities by weight and returns the less loaded one. Of
// equals it returns the first one drawn, so that weights count.
func (powerOfTwo) Pick(r *Request, ws []View) (int, Reason) {
	total := 0.0
	for i := range ws {
		total += ws[i].weight()
	}
	first := drawn(ws, Unit(r.Rand)*total, -1)
	if len(ws) == 1 {
		return first, ReasonPowerOfTwo
	}
	second := drawn(ws, Unit(Mix(r.Rand))*(total-ws[first].weight()), first)
	r.excludeUndrawn(first, second)
	if compareLoad(&ws[second], &ws[first]) < 0 {
		return second, ReasonPowerOfTwo
	}
	return first, ReasonPowerOfTwo
}

// drawn returns the worker that owns the ticket. Each worker owns as many as its weight, except the
// worker at index skip, which owns none.
func drawn(ws []View, ticket float64, skip int) int {
	last := 0
	for i := range ws {
		if i == skip {
			continue
		}
		last = i
		w := ws[i].weight()
		if ticket < w {
			break
		}
		ticket -= w
	}
	return last
}
