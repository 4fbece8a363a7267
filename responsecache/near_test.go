package responsecache

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// randomVector returns a vector of length 1.
func randomVector(random *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	Normalize(v)
	return v
}

// dot returns the scalar product of two vectors of one length.
func dot(a, b []float32) (sum float32) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// TestNearestIsThatOfTheGroup: the nearest answer of a group is found until it expires or is purged, and none of
// another group or dimension.
func TestNearestIsThatOfTheGroup(t *testing.T) {
	var m Memory
	m.SetMax(64 << 20)
	random := rand.New(rand.NewPCG(1, 2))
	groups := []*Key{key("a", 200), key("b", 200), key("a", 201)}
	var vectors [][]float32
	for i := range 300 {
		v := randomVector(random, 8)
		vectors = append(vectors, v)
		of := groups[i%3]
		k := key(of.Name, byte(i%256))
		k.Pool = fmt.Sprint(i)
		if !m.PutNear(k, of, v, entry(10), time.Minute, 0) {
			t.Fatal(i)
		}
	}
	for g, of := range groups {
		v := slices.Clone(vectors[g+3*random.IntN(100)])
		for i := range v {
			v[i] += float32(random.NormFloat64()) * 0.1
		}
		Normalize(v)
		want, most := -1, float32(-2)
		for i := g; i < 300; i += 3 {
			if s := dot(v, vectors[i]); s > most {
				want, most = i, s
			}
		}
		k, similarity, ok := m.Nearest(of, v, LeastSimilarity, at(0))
		if !ok || k.Pool != fmt.Sprint(want) || math.Abs(similarity-float64(most)) > 1e-6 {
			t.Errorf("group %d: %s with %v, want %d with %v", g, k.Pool, similarity, want, most)
		}
		if _, _, ok := m.Nearest(of, v[:7], LeastSimilarity, at(0)); ok {
			t.Error("a vector of another dimension is near")
		}
		if _, _, ok := m.Nearest(of, v, LeastSimilarity, at(60)); ok {
			t.Error("an expired answer is near")
		}
	}
	m.Purge("a")
	for g, of := range groups {
		if _, _, ok := m.Nearest(of, vectors[g], LeastSimilarity, at(0)); ok != (of.Name == "b") {
			t.Errorf("group %d after the purge of a: %t", g, ok)
		}
	}
	m.Purge("b")
	if len(m.groups) > 0 || m.Stats() != (Stats{}) {
		t.Errorf("%d groups are left", len(m.groups))
	}
}

// TestGroupsAreBounded: the oldest answer of a full group is removed.
func TestGroupsAreBounded(t *testing.T) {
	var m Memory
	m.SetMax(1 << 30)
	of, random := key("a", 1), rand.New(rand.NewPCG(1, 2))
	first := randomVector(random, 4)
	for i := range groupMax + 1 {
		k := key("a", 0)
		k.Pool = fmt.Sprint(i)
		v := first
		if i > 0 {
			v = randomVector(random, 4)
		}
		m.PutNear(k, of, v, entry(1), time.Minute, 0)
	}
	if n := m.Stats().Entries; n != groupMax {
		t.Errorf("%d answers", n)
	}
	if k, _, _ := m.Nearest(of, first, LeastSimilarity, at(0)); k.Pool == "0" {
		t.Error("the oldest is still there")
	}
}

// TestVectorsWithoutDirection are refused.
func TestVectorsWithoutDirection(t *testing.T) {
	nan := float32(math.NaN())
	for _, v := range [][]float32{nil, {0, 0}, {nan, 1}, {float32(math.Inf(1)), 1}} {
		if Normalize(v) {
			t.Errorf("%v has a direction", v)
		}
	}
	for _, v := range [][]float32{{1e-40, 0}, {3e38, 3e38}} {
		if !Normalize(v) || math.Abs(float64(dot(v, v))-1) > 1e-6 {
			t.Error(v)
		}
	}
	v := []float32{3, 4}
	if !Normalize(v) || math.Abs(float64(v[0])-0.6) > 1e-6 || math.Abs(float64(v[1])-0.8) > 1e-6 {
		t.Error(v)
	}
}

// textsAround returns a generator of vectors whose mean similarity is mean, as those of related texts.
func textsAround(random *rand.Rand, dims int, mean float64) func() []float32 {
	common := randomVector(random, dims)
	return func() []float32 { return mixed(random, common, mean) }
}

// mixed returns a vector whose similarity to another is about the square root of share.
func mixed(random *rand.Rand, with []float32, share float64) []float32 {
	v := randomVector(random, len(with))
	for i := range v {
		v[i] = float32(math.Sqrt(share))*with[i] + float32(math.Sqrt(1-share))*v[i]
	}
	Normalize(v)
	return v
}

// TestNearTextsAreFoundInACrowd: an answer with the similarity of a threshold is found among related ones, of any
// number of dimensions, also while answers are removed.
func TestNearTextsAreFoundInACrowd(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	searches, lost := 0, 0
	for _, dims := range []int{3, 63, 384, 1024} {
		for _, mean := range []float64{0, 0.5, 0.8} {
			var m Memory
			m.SetMax(1 << 30)
			of, text := key("a", 1), textsAround(random, dims, mean)
			kept := map[string][]float32{}
			for i := range 200 {
				k, v := key("a", 0), text()
				k.Pool = fmt.Sprint(random.IntN(100)) // half of them replace another
				m.PutNear(k, of, v, entry(1), time.Minute, 0)
				kept[k.Pool] = v
				if i < 50 {
					continue
				}
				near := mixed(random, kept[k.Pool], 0.95*0.95)
				want, most := "", float32(LeastSimilarity)
				for pool, v := range kept {
					if s := dot(v, near); s >= most {
						want, most = pool, s
					}
				}
				got, similarity, ok := m.Nearest(of, near, LeastSimilarity, at(0))
				if searches++; got.Pool != want {
					lost++
				} else if ok && math.Abs(similarity-float64(most)) > 1e-5 {
					t.Errorf("%d dimensions: similarity %v instead of %v", dims, similarity, most)
				}
			}
			if n := m.Stats().Entries; n != len(kept) {
				t.Errorf("%d answers instead of %d", n, len(kept))
			}
			if g := m.groups[*of]; len(g.rows) > 2*len(kept) {
				t.Errorf("%d rows for %d answers", len(g.rows), len(kept))
			}
		}
	}
	t.Logf("%d of %d searches did not find the nearest", lost, searches)
	if lost*1000 > searches {
		t.Errorf("%d of %d searches did not find the nearest", lost, searches)
	}
}

// TestVectorsWithoutNumbersAreFar: a vector with NaN is near to none.
func TestVectorsWithoutNumbersAreFar(t *testing.T) {
	var m Memory
	m.SetMax(1 << 20)
	of, bad := key("a", 1), []float32{float32(math.NaN()), 0, 0}
	for i, v := range [][]float32{bad, {1, 0, 0}, {0, 1, 0}} {
		m.PutNear(key("a", byte(2+i)), of, v, entry(1), time.Minute, 0)
	}
	if k, similarity, ok := m.Nearest(of, bad, LeastSimilarity, at(0)); ok {
		t.Errorf("%v has the similarity %v to NaN", k.Body[0], similarity)
	}
	if k, similarity, ok := m.Nearest(of, []float32{0, 0, 1}, LeastSimilarity, at(0)); ok {
		t.Errorf("%v has the similarity %v to an orthogonal vector", k.Body[0], similarity)
	}
}

// TestSimilarTextsDoNotHideTheNearest: among more answers of about the least similarity than are compared, one within
// the threshold is found, also as the last one.
func TestSimilarTextsDoNotHideTheNearest(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 1))
	var m Memory
	m.SetMax(64 << 20)
	of, text := key("a", 1), textsAround(random, 384, 0.92)
	v := text()
	for i := range 4 * manyCompared {
		k, other := key("a", 0), text()
		if k.Pool = fmt.Sprint(i); i == 4*manyCompared-1 {
			other = mixed(random, v, 0.98*0.98)
		}
		m.PutNear(k, of, other, entry(1), time.Minute, 0)
	}
	if k, similarity, ok := m.Nearest(of, v, 0.97, at(0)); !ok || k.Pool != fmt.Sprint(4*manyCompared-1) {
		t.Errorf("%q with %v is the nearest", k.Pool, similarity)
	}
}

// TestLookUpsRunWhileAnswersComeAndGo: look-ups beside additions and removals find answers of their group only.
func TestLookUpsRunWhileAnswersComeAndGo(t *testing.T) {
	var m Memory
	m.SetMax(100_000) // some 50 answers
	var running sync.WaitGroup
	for n := range 4 {
		running.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(n)))
			for i := range 300 {
				tenant := string("ab"[random.IntN(2)])
				of, k, v := key(tenant, 200), key(tenant, byte(random.IntN(60))), randomVector(random, 4)
				m.PutNear(k, of, v, entry(1000), time.Minute, m.Generation(tenant))
				if found, _, ok := m.Nearest(of, v, LeastSimilarity, at(0)); ok && found.Name != tenant {
					t.Errorf("%s gets an answer of %s", tenant, found.Name)
				}
				if m.Get(key(tenant, byte(i)), at(0)); i%100 == 99 {
					m.Purge(tenant)
				}
			}
		})
	}
	running.Wait()
	m.Purge("a")
	if m.Purge("b"); len(m.groups) > 0 || m.Stats().Bytes != 0 {
		t.Errorf("%d groups and %+v are left", len(m.groups), m.Stats())
	}
}
