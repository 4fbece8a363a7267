package training

import (
	"cmp"
	"maps"
	"slices"
)

// split returns the rows to train with and the held-out ones, which are about a quarter of each route. Equal requests
// are on one side, at the time of the first one, and so are requests of one time. The newest requests are held out. If
// the times of a route do not allow that, its requests are held out by their hash.
//
// Of the routes with one request, which may be repeated, every fourth is held out, so that the default score of routes
// without labels is evaluated too. The rows are sorted by time.
func (d *Data) split() (train, test []int) {
	byRoute := map[uint32][][]int{}
	for _, cluster := range d.clusters(d.all()) {
		route := d.rows[cluster[0]].route
		byRoute[route] = append(byRoute[route], cluster)
	}
	heldOut := make([]bool, len(d.rows))
	for _, route := range slices.Sorted(maps.Keys(byRoute)) {
		clusters := byRoute[route]
		held := d.newest(clusters)
		switch {
		case len(clusters) > 1 && 8*size(held) < size(clusters): // half of the quarter
			held = d.byHash(clusters)
		case len(clusters) == 1 && len(byRoute) > 1 && route%4 == 0:
			held = clusters
		}
		for _, i := range slices.Concat(held...) {
			heldOut[i] = true
		}
	}
	for i, held := range heldOut {
		if held {
			test = append(test, i)
		} else {
			train = append(train, i)
		}
	}
	return train, test
}

// newest returns the newest clusters with the number of rows nearest to a quarter, without a division between equal
// times. The clusters are sorted by time.
func (d *Data) newest(clusters [][]int) [][]int {
	rows := size(clusters)
	best, least, n := len(clusters), rows, 0
	for from := len(clusters) - 1; from > 0; from-- {
		n += len(clusters[from])
		divides := d.rows[clusters[from-1][0]].time.Before(d.rows[clusters[from][0]].time)
		if distance := toQuarter(n, rows); divides && distance <= least {
			best, least = from, distance
		}
	}
	return clusters[best:]
}

// byHash returns clusters with the number of rows nearest to a quarter, in the order of their hashes.
func (d *Data) byHash(clusters [][]int) (held [][]int) {
	sorted := slices.SortedFunc(slices.Values(clusters), func(a, b []int) int {
		return cmp.Compare(d.rows[a[0]].content, d.rows[b[0]].content)
	})
	rows, n := size(clusters), 0
	for _, cluster := range sorted {
		if more := n + len(cluster); toQuarter(more, rows) <= toQuarter(n, rows) {
			held, n = append(held, cluster), more
		}
	}
	return held
}

// toQuarter returns four times the distance of n to a quarter of all rows.
func toQuarter(n, rows int) int { return max(4*n-rows, rows-4*n) }

func size(clusters [][]int) (n int) {
	for _, c := range clusters {
		n += len(c)
	}
	return n
}
