package responsecache

import (
	"math"
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
	head    head   // of the vector, beside those of the other rows
	vector  []part // rotated
	expires int64  // in ns
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
	scale := float32(1 / math.Sqrt(sum))
	for i := range v {
		v[i] *= scale
	}
	return true
}

// Nearest returns the key of the answer of a group whose vector is nearest to v, a vector of length 1, with their
// similarity, from LeastSimilarity to 1. Get may find the answer gone. About one of 1,000 answers that are just near
// enough is missed, because no more parts of a vector are compared than tell that it is most likely too far.
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
	rotated, at := rotate(v), now.UnixNano()
	far, farthest := newBounds(len(rotated)), float32(2*(1-LeastSimilarity))
	for i := range rows {
		r := &rows[i]
		d, near := far.distance(0, 0, rotated[:len(r.head)], r.head[:], farthest)
		if !near || r.item.dims != len(v) || at >= r.expires || r.item.gone.Load() {
			continue
		}
		if d, near = far.distance(d, len(r.head), rotated[len(r.head):], r.vector[len(r.head):], farthest); near {
			best, farthest = r.item, d
		}
	}
	if best == nil {
		return k, 0, false
	}
	return best.key, 1 - float64(farthest)/2, true
}

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
	g.rows = append(g.rows, row{head(it.vector), it.vector, it.expires.UnixNano(), it})
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
