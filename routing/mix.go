package routing

// golden is 2^64 divided by the golden ratio, made odd: its multiples are spread evenly.
const golden = 0x9E3779B97F4A7C15

// Mix is a bijection that spreads every bit of x over all 64 bits. It is the finalizer of SplitMix64
// (Steele, Lea and Flood, 2014), with multipliers and shifts by David Stafford.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// HashText is the FNV-1a hash of a text. All gateways share it.
func HashText[T string | []byte](text T) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return h
}

// Draw returns the random number of a state, as SplitMix64 does. The numbers of neighbouring states
// are independent.
func Draw(state uint64) uint64 { return Mix(state + golden) }

// Unit maps 64 random bits to a number in [0, 1). It uses 53 bits, which a float64 holds exactly.
func Unit(random uint64) float64 { return float64(random>>11) / (1 << 53) }
