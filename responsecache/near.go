package responsecache

import (
	"math"
	"slices"
	"time"
)

// groupMax is the largest number of answers in a group: a look-up compares with each of them.
const groupMax = 10_000

// LeastSimilarity is the least similarity that Nearest finds. Texts with less have nothing in common.
const LeastSimilarity = 0.8

// group has the answers among which a look-up finds the nearest one. Its rows never change, so that a look-up reads
// them without a lock.
type group struct{ rows []row } // in the order of their time

// row is an answer of a group.
type row struct {
	vector  []float32 // of length 1
	rest    rests
	expires int64 // in ns
	item    *item
}

// rests are the lengths of what remains of a vector after each of its first three quarters.
type rests [3]float32

// quarter returns a quarter of a vector, by its number from 0.
func quarter(v []float32, n int) []float32 { return v[n*len(v)/4 : (n+1)*len(v)/4] }

func restsOf(v []float32) (r rests) {
	sum := float32(0)
	for n := 3; n > 0; n-- {
		sum += dot(quarter(v, n), quarter(v, n))
		r[n-1] = float32(math.Sqrt(float64(sum)))
	}
	return r
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
// similarity, from LeastSimilarity to 1. Get may find the answer gone. A row is left as soon as the rest of its vector
// cannot make it the nearest: the product of two vectors is at most that of their lengths.
func (m *Memory) Nearest(of *Key, v []float32, now time.Time) (k Key, similarity float64, ok bool) {
	m.mu.Lock()
	var rows []row
	if g := m.groups[*of]; g != nil {
		rows = g.rows
	}
	m.mu.Unlock()
	var best *item
	most, rest, at := float32(LeastSimilarity), restsOf(v), now.UnixNano()
rows:
	for i := range rows {
		r := &rows[i]
		if len(r.vector) != len(v) || at >= r.expires {
			continue
		}
		s := float32(0)
		for n := range 4 {
			s += dot(quarter(r.vector, n), quarter(v, n))
			if n < 3 && s+r.rest[n]*rest[n] < most {
				continue rows
			}
		}
		if s >= most {
			best, most = r.item, s
		}
	}
	if best == nil {
		return k, 0, false
	}
	return best.key, min(float64(most), 1), true
}

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
	if len(g.rows) >= groupMax {
		m.remove(g.rows[0].item)
	}
	g.rows = append(g.rows, row{it.vector, restsOf(it.vector), it.expires.UnixNano(), it})
}

// leave removes an item from its group.
func (m *Memory) leave(it *item) {
	g := m.groups[it.group]
	switch i := slices.IndexFunc(g.rows, func(r row) bool { return r.item == it }); {
	case i == 0:
		g.rows = g.rows[1:]
	case i > 0:
		g.rows = append(slices.Clone(g.rows[:i]), g.rows[i+1:]...)
	}
	if len(g.rows) == 0 {
		delete(m.groups, it.group)
	}
}
