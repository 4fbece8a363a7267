package liveness

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tierway/routing"
)

// cell is one combination of the matrix.
type cell struct {
	policy  string
	stream  bool
	prefix  string
	fault   string
	tenants int
	workers int
}

// String names the cell.
func (c cell) String() string {
	return fmt.Sprintf("%s/%s/%s/%s/tenants=%d/workers=%d", c.policy, answerKind(c.stream), c.prefix, c.fault, c.tenants,
		c.workers)
}

// dimension is a property of cells with all its values.
type dimension struct {
	size int
	set  func(c *cell, value int)
}

// dimensions returns the dimensions of the matrix.
func dimensions() []dimension {
	policies := routing.Names()
	prefixes := []string{sharedPrefix, uniquePrefix, repeatedPrefix}
	tenants, workers := []int{1, len(tenantNames)}, []int{2, 4}
	return []dimension{
		{len(policies), func(c *cell, i int) { c.policy = policies[i] }},
		{2, func(c *cell, i int) { c.stream = i == 0 }},
		{len(prefixes), func(c *cell, i int) { c.prefix = prefixes[i] }},
		{len(faults), func(c *cell, i int) { c.fault = faults[i].name }},
		{len(tenants), func(c *cell, i int) { c.tenants = tenants[i] }},
		{len(workers), func(c *cell, i int) { c.workers = workers[i] }},
	}
}

// cellOf returns the cell with an index in each dimension.
func cellOf(dims []dimension, at []int) (c cell) {
	for d, i := range at {
		dims[d].set(&c, i)
	}
	return c
}

// cross returns the indexes of all cells.
func cross(dims []dimension) [][]int {
	all := [][]int{nil}
	for _, d := range dims {
		var longer [][]int
		for _, at := range all {
			for i := range d.size {
				longer = append(longer, append(slices.Clone(at), i))
			}
		}
		all = longer
	}
	return all
}

// valuePair is a value of each of two dimensions.
type valuePair struct{ d1, v1, d2, v2 int }

func pairsOf(at []int) (pairs []valuePair) {
	for d1 := range at {
		for d2 := d1 + 1; d2 < len(at); d2++ {
			pairs = append(pairs, valuePair{d1, at[d1], d2, at[d2]})
		}
	}
	return pairs
}

// pairwise returns cells in which each pair of values of two dimensions occurs: repeatedly the one with the
// most pairs that are missing. Of several it takes the first of a fixed random order, so that no value
// prevails. It always returns the same cells.
func pairwise(all [][]int) (chosen [][]int) {
	all = slices.Clone(all)
	rand.New(rand.NewPCG(5, 6)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	missing := map[valuePair]bool{}
	for _, at := range all {
		for _, p := range pairsOf(at) {
			missing[p] = true
		}
	}
	for len(missing) > 0 {
		best, most := 0, 0
		for i, at := range all {
			n := 0
			for _, p := range pairsOf(at) {
				if missing[p] {
					n++
				}
			}
			if n > most {
				best, most = i, n
			}
		}
		chosen = append(chosen, all[best])
		for _, p := range pairsOf(all[best]) {
			delete(missing, p)
		}
	}
	return chosen
}

func TestPairwiseCellsHaveEachPairOfValues(t *testing.T) {
	dims := dimensions()
	all := cross(dims)
	chosen := pairwise(all)
	found := map[valuePair]bool{}
	for _, at := range chosen {
		for _, p := range pairsOf(at) {
			found[p] = true
		}
	}
	for _, at := range all {
		for _, p := range pairsOf(at) {
			if !found[p] {
				t.Fatalf("no chosen cell has the pair %+v", p)
			}
		}
	}
	if least := dims[0].size * dims[3].size; len(chosen) > least*5/4 {
		t.Errorf("%d of %d cells are chosen; %d have all pairs of policies and faults", len(chosen), len(all), least)
	}
}
