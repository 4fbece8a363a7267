package responsecache

import (
	"math"
	"math/rand/v2"
	"time"
)

// groupMax is the largest number of answers in a group: a look-up compares with each of them.
const groupMax = 10_000

// LeastSimilarity is the least similarity that Nearest finds, and the least threshold.
const LeastSimilarity = 0.9

// group has the answers among which a look-up finds the nearest one. Its rows never change, so that a look-up reads
// them without a lock.
type group struct {
	rows []row // in the order of their time; the first one is not gone
	gone int   // rows whose items are gone
}

// row is an answer of a group.
type row struct {
	head    vectorHead // of the vector; those of all rows are contiguous, for the processor's cache
	vector  []segment  // rotated
	expires int64      // in ns
	item    *item
}

// Normalize scales a vector to the length 1. ok is false if it has no direction.
func Normalize(v []float32) (ok bool) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if !(sum > 0) || math.IsInf(sum, 1) {
		return false
	}
	scale := 1 / math.Sqrt(sum)
	for i, x := range v {
		v[i] = float32(float64(x) * scale)
	}
	return true
}

// manyCompared is how many answers of a group may be compared beyond their heads before Nearest searches those within
// its threshold only. It bounds the time of a look-up among texts that are all similar.
const manyCompared = 256

// Nearest returns the key of the answer of a group whose vector is nearest to v, a vector of length 1, with their
// similarity, from LeastSimilarity to 1. Get may find the answer gone. In up to 2 of 1,000 look-ups with an answer that
// is just near enough, it returns a farther one, or none. The same may happen below the threshold if more than 256
// answers have about the least similarity.
func (m *Memory) Nearest(of *Key, v []float32, threshold float64, now time.Time) (k Key, similarity float64, ok bool) {
	m.mu.Lock()
	var rows []row
	if g := m.groups[*of]; g != nil {
		rows = g.rows
	}
	m.mu.Unlock()
	if len(rows) == 0 {
		return k, 0, false
	}
	var best *item
	var nearest float32
	rotated, at, compared := rotate(v), now.UnixNano(), 0
	limits, farthest := newBounds(len(rotated)), squaredDistance(LeastSimilarity)
	for i := range rows {
		r := &rows[i]
		d, within := limits.distanceWithin(0, 0, rotated[:len(r.head)], r.head[:], farthest)
		if !within || r.item.dims != len(v) || at >= r.expires || r.item.gone.Load() {
			continue
		}
		d, within = limits.distanceWithin(d, len(r.head), rotated[len(r.head):], r.vector[len(r.head):], farthest)
		if within {
			best, nearest, farthest = r.item, d, d
		}
		if compared++; compared == manyCompared {
			farthest = min(farthest, squaredDistance(threshold))
		}
	}
	if best == nil {
		return k, 0, false
	}
	return best.key, max(1-float64(nearest)/2, LeastSimilarity), true
}

// squaredDistance returns the square of the distance of two vectors of length 1 with a similarity.
func squaredDistance(similarity float64) float32 { return float32(2 * (1 - similarity)) }

// PutNear keeps an answer like Put, to be found by a vector of length 1 in a group. A group has at most 10,000
// answers; beyond it, the oldest is removed.
func (m *Memory) PutNear(k, of *Key, v []float32, e Entry, ttl time.Duration, generation uint64) bool {
	it := &item{key: *k, entry: e, expires: e.At.Add(ttl), vector: rotate(v), dims: len(v), group: *of}
	return m.put(it, generation)
}

// join adds an item to its group.
func (m *Memory) join(it *item) {
	if m.groups == nil {
		m.groups = map[Key]*group{}
	}
	g := m.groups[it.group]
	if g == nil {
		g = &group{}
		m.groups[it.group] = g
	}
	if len(g.rows)-g.gone >= groupMax {
		m.remove(g.rows[0].item)
	}
	g.rows = append(g.rows, row{vectorHead(it.vector), it.vector, it.expires.UnixNano(), it})
}

// leave removes an item from its group. Its row stays until it is the first one, or a quarter of the rows are gone.
func (m *Memory) leave(it *item) {
	g := m.groups[it.group]
	it.gone.Store(true)
	it.entry = Entry{}
	g.gone++
	for len(g.rows) > 0 && g.rows[0].item.gone.Load() {
		g.rows = g.rows[1:]
		g.gone--
	}
	if 4*g.gone > len(g.rows) {
		rows := make([]row, 0, len(g.rows))
		for i := range g.rows {
			if !g.rows[i].item.gone.Load() {
				rows = append(rows, g.rows[i])
			}
		}
		g.rows, g.gone = rows, 0
	}
	if len(g.rows) == 0 {
		delete(m.groups, it.group)
	}
}

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
