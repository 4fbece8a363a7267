package training

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"tierway/tierscore"
)

// Data is requests with features and labels. The zero value has none.
type Data struct {
	Lines int // feature lines, with and without labels
	// Ambiguous are lines whose labelled id an earlier line has. Neither line has labels.
	Ambiguous  int
	Incomplete int // lines that end early, after a crash of their writer; they are not used

	rows  []row
	key   uint32         // of the features
	cols  []uint32       // columns of all rows
	tiers map[string]int // lines by the tier that answered
}

// countTier counts a line of features of a tier; empty: unknown.
func (d *Data) countTier(tier string) {
	if d.tiers == nil {
		d.tiers = map[string]int{}
	}
	if tier != "" {
		d.tiers[tier]++
	}
}

// row is one labelled request.
type row struct {
	time     time.Time
	route    uint32
	baseline float64
	first    int // of its columns in cols
	end      int
	words    int
	content  uint64 // hash of route and columns
	explored bool
	tiers    [2]tierLabels // small, large
}

// Example is a request with a label for each tier that answered it; nil: no label.
type Example struct {
	Time         time.Time
	Features     *tierscore.Features
	Baseline     float64
	Small, Large *bool
}

// Add adds an example whose tiers do not depend on the request.
func (d *Data) Add(e Example) error {
	var tiers [2]tierLabels
	for i, ok := range []*bool{e.Small, e.Large} {
		if ok != nil {
			tiers[i].add(1, *ok, true)
		}
	}
	d.Lines++
	return d.add(&featureLine{Time: Timestamp{e.Time}, Baseline: &e.Baseline, Features: e.Features}, tiers)
}

func (d *Data) add(line *featureLine, tiers [2]tierLabels) error {
	f := line.Features
	switch {
	case len(d.rows) > 0 && f.Key() != d.key:
		return errors.New("the features were taken with another key than those before: train with one key")
	case math.IsNaN(*line.Baseline) || math.Abs(*line.Baseline) > maxBaseline:
		return fmt.Errorf("baseline is out of range: write a number from -%g to %g", maxBaseline, maxBaseline)
	}
	d.key = f.Key()
	first := len(d.cols)
	d.cols = f.AppendColumns(d.cols)
	d.rows = append(d.rows, row{line.Time.Time, f.Route(), *line.Baseline, first, len(d.cols), f.WordCount(),
		contentOf(f.Route(), d.cols[first:]), line.Explored != nil, tiers})
	return nil
}

// maxBaseline limits default scores, so that no sum of them overflows.
const maxBaseline = 1e9

// contentOf returns the FNV-1a hash of a route and columns.
func contentOf(route uint32, columns []uint32) uint64 {
	h := fnv.New64a()
	h.Write(binary.LittleEndian.AppendUint32(nil, route))
	for _, c := range columns {
		h.Write(binary.LittleEndian.AppendUint32(nil, c))
	}
	return h.Sum64()
}

// clusters divides rows into those with equal route and columns, such as repetitions of a prompt, in the order of their
// first rows. The values are positions in rows.
func (d *Data) clusters(rows []int) (all [][]int) {
	at := map[uint64]int{}
	for k, i := range rows {
		content := d.rows[i].content
		c, ok := at[content]
		if !ok {
			c, all = len(all), append(all, nil)
			at[content] = c
		}
		all[c] = append(all[c], k)
	}
	return all
}

// Requests returns the number of labelled requests.
func (d *Data) Requests() (n int) {
	for i := range d.rows {
		n += count(d.rows[i].labelled())
	}
	return n
}

// columns returns the columns of a row.
func (d *Data) columns(i int) []uint32 { return d.cols[d.rows[i].first:d.rows[i].end] }

// labelled reports whether a tier has a label.
func (r *row) labelled() bool { return r.tiers[0].all.weight > 0 || r.tiers[1].all.weight > 0 }

// paired reports whether both tiers have a label.
func (r *row) paired() bool { return r.tiers[0].all.weight > 0 && r.tiers[1].all.weight > 0 }

// random reports whether a tier has a random label.
func (r *row) random() bool { return r.tiers[0].random.weight > 0 || r.tiers[1].random.weight > 0 }
