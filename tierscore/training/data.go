package training

import (
	"errors"
	"fmt"
	"math"
	"time"

	"tierway/tierscore"
)

// Data is requests with features and labels. The zero value has none.
type Data struct {
	Lines int // feature lines, with and without labels

	rows []row
	key  uint32   // of the features
	cols []uint32 // columns of all rows
}

// row is one labelled request.
type row struct {
	time     time.Time
	route    uint32
	baseline float64
	first    int // of its columns in cols
	end      int
	words    int
	sides    [2]side // small, large
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
	var sides [2]side
	for i, ok := range []*bool{e.Small, e.Large} {
		if ok != nil {
			sides[i] = side{weight: 1, chance: true}
			if *ok {
				sides[i].right = 1
			}
		}
	}
	d.Lines++
	return d.add(&featureLine{Time: e.Time, Baseline: &e.Baseline, Features: e.Features}, sides)
}

func (d *Data) add(line *featureLine, sides [2]side) error {
	f := line.Features
	switch {
	case len(d.rows) > 0 && f.Key() != d.key:
		return errors.New("the features were taken with another key than those before: train with one key")
	case math.IsNaN(*line.Baseline) || math.Abs(*line.Baseline) > 1e9:
		return fmt.Errorf("baseline %g is out of range", *line.Baseline)
	}
	d.key = f.Key()
	first := len(d.cols)
	d.cols = f.AppendColumns(d.cols)
	d.rows = append(d.rows, row{line.Time, f.Route(), *line.Baseline, first, len(d.cols), f.Words(), sides})
	return nil
}

// Requests returns the number of labelled requests.
func (d *Data) Requests() int { return len(d.rows) }

// columns returns the columns of a row.
func (d *Data) columns(i int) []uint32 { return d.cols[d.rows[i].first:d.rows[i].end] }

// paired reports whether both tiers have a label.
func (r *row) paired() bool { return r.sides[0].weight > 0 && r.sides[1].weight > 0 }
