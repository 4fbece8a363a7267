package responsecache

import (
	"math"
	"math/rand/v2"
)

// part is 64 numbers of a vector.
type part [64]float32

// head is the first numbers of a rotated vector. Nearly all comparisons end in it.
type head [2]part

// rotate returns a vector, filled with zeros to whole parts and at least a head, after the same random rotation for all
// vectors. Distances stay, and each part has about its share of them, wherever the vectors differ: that of c of n
// numbers has a relative standard deviation of sqrt(2/c (1 - c/n)). Each of four turns changes signs at random, spreads
// each part over itself by a Hadamard transform, and spreads it over all parts.
func rotate(v []float32) []part {
	n := max((len(v)+len(part{})-1)/len(part{}), len(head{}))
	from, to := make([]part, n), make([]part, n)
	for i, x := range v {
		from[i/len(part{})][i%len(part{})] = x
	}
	random := rand.NewPCG(1, 2)
	for range 4 {
		for i := range from {
			p := &from[i]
			p.spread(random.Uint64())
			for j, x := range p {
				at := j*n + i
				to[at/len(p)][at%len(p)] = x
			}
		}
		from, to = to, from
	}
	return from
}

// spread changes the signs of a part by bits, and applies a Hadamard transform that keeps its length.
func (p *part) spread(signs uint64) {
	for i, x := range p {
		p[i] = math.Float32frombits(math.Float32bits(x/8) ^ uint32(signs>>i)<<31) // 8 is the square root of 64
	}
	for half := 1; half < len(p); half *= 2 {
		for i := 0; i < len(p); i += 2 * half {
			for j := i; j < i+half; j++ {
				p[j], p[j+half] = p[j]+p[j+half], p[j]-p[j+half]
			}
		}
	}
}

// distance returns the square of the distance of two parts. Four sums let the processor add in parallel.
func (p *part) distance(o *part) float32 {
	var d0, d1, d2, d3 float32
	for i := 0; i < len(p); i += 4 {
		x, y := p[i:i+4:i+4], o[i:i+4:i+4]
		e0, e1, e2, e3 := x[0]-y[0], x[1]-y[1], x[2]-y[2], x[3]-y[3]
		d0 += e0 * e0
		d1 += e1 * e1
		d2 += e2 * e2
		d3 += e3 * e3
	}
	return d0 + d1 + d2 + d3
}

// bounds are the largest shares of the square of the distance of two rotated vectors that their first part has, their
// first two parts, and so on. Each but the last, which is 1, lies four standard deviations above what is expected.
type bounds []float32

// newBounds returns the bounds of vectors of that many parts.
func newBounds(parts int) bounds {
	b := make(bounds, parts)
	for i := range b {
		share := float64(i+1) / float64(parts)
		deviation := math.Sqrt(2 / float64((i+1)*len(part{})) * (1 - share))
		b[i] = float32(share * (1 + 4*deviation))
	}
	return b
}

// distance returns the square of the distance of parts that begin with number from, added to that of the earlier ones.
// ok is false if it is larger than farthest, the square of a distance of whole vectors, allows. It stops at the first
// part that tells.
func (b bounds) distance(earlier float32, from int, v, o []part, farthest float32) (d float32, ok bool) {
	d = earlier
	for i := range v {
		d += v[i].distance(&o[i])
		if d > b[from+i]*farthest {
			return d, false
		}
	}
	return d, true
}
