package responsecache

import (
	"math"
	"math/rand/v2"
)

// segment is 64 numbers of a vector.
type segment [64]float32

// vectorHead is the first two segments of a rotated vector. Most comparisons need no more.
type vectorHead [2]segment

// rotate returns v after a random rotation that is the same for all vectors of equal length. Zeros fill it to whole
// segments, at least two. Distances stay. Each segment has about its share of a distance, wherever the vectors differ:
// the share of c of n numbers has a relative standard deviation of sqrt(2/c (1 - c/n)). Each of four rounds changes
// signs at random, applies a Hadamard transform to each segment, and interleaves the segments. After three rounds, the
// shares of vectors that differ in one number or one segment still deviate more.
func rotate(v []float32) []segment {
	n := max((len(v)+len(segment{})-1)/len(segment{}), len(vectorHead{}))
	from, to := make([]segment, n), make([]segment, n)
	for i, x := range v {
		from[i/len(segment{})][i%len(segment{})] = x
	}
	random := rand.NewPCG(1, 2)
	for range 4 {
		for i := range from {
			s := &from[i]
			s.transform(random.Uint64())
			for j, x := range s {
				at := j*n + i
				to[at/len(s)][at%len(s)] = x
			}
		}
		from, to = to, from
	}
	return from
}

// transform changes the signs of a segment by bits, and applies a Hadamard transform that keeps its length.
func (s *segment) transform(signs uint64) {
	for i, x := range s {
		s[i] = math.Float32frombits(math.Float32bits(x/8) ^ uint32(signs>>i)<<31) // 8 is the square root of 64
	}
	for half := 1; half < len(s); half *= 2 {
		for i := 0; i < len(s); i += 2 * half {
			for j := i; j < i+half; j++ {
				s[j], s[j+half] = s[j]+s[j+half], s[j]-s[j+half]
			}
		}
	}
}

// squaredDistance returns the square of the distance of two segments. Four sums let the processor add in parallel.
func (s *segment) squaredDistance(o *segment) float32 {
	var d0, d1, d2, d3 float32
	for i := 0; i < len(s); i += 4 {
		x, y := s[i:i+4:i+4], o[i:i+4:i+4]
		e0, e1, e2, e3 := x[0]-y[0], x[1]-y[1], x[2]-y[2], x[3]-y[3]
		d0 += e0 * e0
		d1 += e1 * e1
		d2 += e2 * e2
		d3 += e3 * e3
	}
	return d0 + d1 + d2 + d3
}

// bounds[i] is the largest share of a squared distance that the first i+1 segments may have. It is four standard
// deviations above the expected share, which at most 2 of 1,000 distances exceed somewhere. The last bound is 1.
type bounds []float32

// newBounds returns the bounds of vectors of that many segments.
func newBounds(segments int) bounds {
	b := make(bounds, segments)
	for i := range b {
		share := float64(i+1) / float64(segments)
		deviation := math.Sqrt(2 / float64((i+1)*len(segment{})) * (1 - share))
		b[i] = float32(share * (1 + 4*deviation))
	}
	return b
}

// distanceWithin adds the squared distances of v and o, which begin at a segment, to earlier, which is that of the
// segments before. ok is false as soon as the sum exceeds its bound for farthest, the largest squared distance of whole
// vectors, or is no number.
func (b bounds) distanceWithin(earlier float32, begin int, v, o []segment, farthest float32) (d float32, ok bool) {
	d = earlier
	for i := range v {
		d += v[i].squaredDistance(&o[i])
		if !(d <= b[begin+i]*farthest) {
			return d, false
		}
	}
	return d, true
}
