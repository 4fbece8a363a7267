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
	sketch  sketch
	vector  []float32 // of length 1
	expires int64     // in ns
	item    *item
}

// sketch is a short random projection of a vector. The square of the distance of two sketches is about that of their
// vectors, with a relative standard deviation of the square root of 2/64, which is 18 %.
type sketch [64]float32

// sketchMargin is by how much the square of a distance may be overestimated: by four standard deviations. An answer
// beyond it is a miss, of one in 2,000 that are just near enough.
const sketchMargin = 1.7

// sketchOf adds each number of a vector to each of the sketch's with a random sign, the same for all vectors.
func sketchOf(v []float32) (s sketch) {
	random := rand.NewPCG(1, 2)
	for _, x := range v {
		signs, bits := random.Uint64(), math.Float32bits(x/8) // 8 is the square root of 64
		for i := range s {
			s[i] += math.Float32frombits(bits ^ uint32(signs>>i)<<31)
		}
	}
	return s
}

// distance returns the square of the distance of two sketches. Four sums let the processor add in parallel.
func (s *sketch) distance(o *sketch) float32 {
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

// Normalize scales a vector to the length 1. ok is false if it has no direction.
func Normalize(v []float32) (ok bool) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if !(sum > 0) || math.IsInf(sum, 1) {
		return false
	}
	scale := float32(1 / math.Sqrt(sum))
	for i := range v {
		v[i] *= scale
	}
	return true
}

// dot returns the product of two vectors of one length. Four sums let the processor add in parallel.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}

// Nearest returns the key of the answer of a group whose vector is nearest to v, a vector of length 1, with their
// similarity, from LeastSimilarity to 1. Get may find the answer gone. Only rows whose sketches are near are compared.
func (m *Memory) Nearest(of *Key, v []float32, now time.Time) (k Key, similarity float64, ok bool) {
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
	most, sketched, at := float32(LeastSimilarity), sketchOf(v), now.UnixNano()
	farthest := farthestSketch(most)
	for i := range rows {
		r := &rows[i]
		if r.sketch.distance(&sketched) > farthest || len(r.vector) != len(v) || at >= r.expires || r.item.gone.Load() {
			continue
		}
		if s := dot(r.vector, v); s >= most {
			best, most, farthest = r.item, s, farthestSketch(s)
		}
	}
	if best == nil {
		return k, 0, false
	}
	return best.key, min(float64(most), 1), true
}

// farthestSketch returns the square of the largest distance of the sketches of vectors with a similarity.
func farthestSketch(similarity float32) float32 { return 2 * (1 - similarity) * sketchMargin }

// PutNear keeps an answer like Put, to be found by a vector of length 1 in a group. A group has at most 10,000
// answers; beyond it, the oldest is removed.
func (m *Memory) PutNear(k, of *Key, v []float32, e Entry, ttl time.Duration, generation uint64) bool {
	return m.put(&item{key: *k, entry: e, expires: e.At.Add(ttl), vector: v, group: *of}, generation)
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
	g.rows = append(g.rows, row{sketchOf(it.vector), it.vector, it.expires.UnixNano(), it})
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
