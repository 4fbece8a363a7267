package routing

// powerOfTwo draws two workers and takes the less loaded one: nearly as even as comparing
// all of them, and several gateways do not all choose the same one. It has no memory.
type powerOfTwo struct{}

func (powerOfTwo) Name() string { return "power_of_two" }

// Pick draws two distinct workers, each with a chance of its weight, and takes the less
// loaded one. Of equals it takes the one drawn first, so that weights count.
func (powerOfTwo) Pick(r *Request, ws []View) (int, Reason) {
	total := uint64(0)
	for i := range ws {
		total += uint64(ws[i].Weight)
	}
	first := drawn(ws, below(r.Rand, total), -1)
	if len(ws) == 1 {
		return first, ReasonPowerOfTwo
	}
	second := drawn(ws, below(Mix(r.Rand), total-uint64(ws[first].Weight)), first)
	r.excludeUndrawn(first, second)
	if compareLoad(&ws[second], &ws[first]) < 0 {
		return second, ReasonPowerOfTwo
	}
	return first, ReasonPowerOfTwo
}

// drawn returns the worker that has the ticket if each but the one left out has as many as
// its weight.
func drawn(ws []View, ticket uint64, without int) int {
	last := 0
	for i := range ws {
		if i == without {
			continue
		}
		last = i
		w := uint64(ws[i].Weight)
		if ticket < w {
			break
		}
		ticket -= w
	}
	return last
}
