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
	// Ambiguous are lines with a labelled id whose tenant and id another line has too. They have no labels.
	Ambiguous int
	// OtherKeys are lines whose hashes have another key than the newest line, such as those before a rotation of the key.
	// They are not used. Join counts them.
	OtherKeys  int
	Incomplete int // lines that end early, after a crash of their writer; they are not used

	rows  []row
	key   uint32         // of the features; those of the newest line
	last  time.Time      // of the newest line
	keys  map[uint32]int // lines by key
	cols  []uint32       // columns of all rows
	tiers map[string]int // lines by the tier that answered
}

// Unused are the numbers of lines that were read and not used.
type Unused struct {
	OtherTiers      int `json:"other_tiers" doc:"Labels of other tiers than the two."`
	OtherTenants    int `json:"other_tenants" doc:"Labels of another tenant than that of the request."`
	AmbiguousLabels int `json:"ambiguous_labels" doc:"Labels without a tenant, with an id that several tenants have."`
	AmbiguousLines  int `json:"ambiguous_lines" doc:"Lines of features with labels, whose tenant and id another line has too."`
	OtherKeys       int `json:"other_keys" doc:"Lines of features with another hash_key than the newest line."`
	Incomplete      int `json:"incomplete" doc:"Lines that end early, after a crash of their writer."`
}

// Unused returns the numbers of lines that were not used. It is called after Join.
func (d *Data) Unused(l *Labels) Unused {
	return Unused{OtherTiers: l.OtherTier, OtherTenants: l.OtherTenant,
		AmbiguousLabels: l.Ambiguous, AmbiguousLines: d.Ambiguous,
		OtherKeys: d.OtherKeys, Incomplete: l.Incomplete + d.Incomplete}
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

// countKey counts a line by the key of its features. The key of the newest line is the one in use.
func (d *Data) countKey(key uint32, at time.Time) {
	if d.keys == nil {
		d.keys = map[uint32]int{}
	}
	d.keys[key]++
	if !at.Before(d.last) {
		d.key, d.last = key, at
	}
}

type row struct {
	time     time.Time
	key      uint32
	route    uint32
	baseline float64
	first    int // of its columns in cols
	end      int
	words    int
	content  uint64  // hash of route and columns
	explored float64 // probability with which the tier was selected at random; 0: it was not
	tenant   string  // empty: unknown
	answered int     // tier that answered: 0 small, 1 large, -1 another or unknown
	// unevaluated is set if the tier was selected at random, and there is feedback about it that does not evaluate.
	unevaluated bool
	tiers       [2]tierLabels // small, large
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
	if len(d.rows) > 0 && e.Features.Key() != d.key {
		return errors.New("the features were taken with another key than those before: train with one key")
	}
	d.key = e.Features.Key()
	if err := d.add(&featureLine{Time: Timestamp{e.Time}, Baseline: &e.Baseline, Features: e.Features}); err != nil {
		return err
	}
	d.Lines++
	d.rows[len(d.rows)-1].tiers = tiers
	return nil
}

// add adds a row without labels.
func (d *Data) add(line *featureLine) error {
	f := line.Features
	if math.IsNaN(*line.Baseline) || math.Abs(*line.Baseline) > maxBaseline {
		return fmt.Errorf("baseline is out of range: write a number from -%g to %g", maxBaseline, maxBaseline)
	}
	first := len(d.cols)
	d.cols = f.AppendColumns(d.cols)
	r := row{time: line.Time.Time, key: f.Key(), route: f.Route(), baseline: *line.Baseline, first: first,
		end: len(d.cols), words: f.WordCount(), content: contentOf(f.Route(), d.cols[first:]), tenant: line.Tenant,
		answered: -1}
	if line.Explored != nil {
		r.explored = *line.Explored
	}
	d.rows = append(d.rows, r)
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

// CheckUnique returns an error if no request has labels because lines of features repeat others, such as those of a
// file that is read twice. It is called after Join.
func (d *Data) CheckUnique() error {
	if d.Requests() > 0 || d.Ambiguous == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d lines of features have the tenant and id of another line, and no other line has labels: "+
		"name each file once", d.Ambiguous, d.Lines)
}

// Unevaluated returns the number of explored requests with feedback that does not evaluate.
func (d *Data) Unevaluated() (n int) {
	for i := range d.rows {
		n += count(d.rows[i].unevaluated)
	}
	return n
}

// columns returns the columns of a row.
func (d *Data) columns(i int) []uint32 { return d.cols[d.rows[i].first:d.rows[i].end] }

// labelled reports whether a tier has a label.
func (r *row) labelled() bool { return r.tiers[0].all.weight > 0 || r.tiers[1].all.weight > 0 }

func (r *row) paired() bool { return r.tiers[0].all.weight > 0 && r.tiers[1].all.weight > 0 }

// random reports whether a tier has a random label.
func (r *row) random() bool { return r.tiers[0].random.weight > 0 || r.tiers[1].random.weight > 0 }
