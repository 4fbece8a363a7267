package training

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"tierway/tierscore"
)

// maxLine limits a line of features or labels in bytes. Features have at most 6 KB.
const maxLine = 1 << 20

// Tiers are the names of the two tiers that labels compare.
type Tiers struct{ Small, Large string }

// label is one line of labels: whether the answer of a tier to a request was right.
type label struct {
	ID     string    `json:"id"`
	Time   Timestamp `json:"ts"`
	Route  string    `json:"route"`  // as in features; may be empty
	Tenant string    `json:"tenant"` // not used: the route has it
	Tier   string    `json:"tier"`
	OK     *bool     `json:"ok"`
	Weight *float64  `json:"weight"` // 1 if it is absent
	Source string    `json:"source"`
}

// featureLine is one line of features.
type featureLine struct {
	ID       string              `json:"id"`
	Time     Timestamp           `json:"ts"`
	Baseline *float64            `json:"baseline"` // the default score
	Features *tierscore.Features `json:"features"`
}

// Sources of labels. Labels of the first two are random: the tier does not depend on the request, because both tiers
// answered or the tier was selected at random. Only they are used to evaluate.
const (
	sourceReplay      = "replay"
	sourceExploration = "exploration"
	sourceEscalation  = "escalation"
	sourceFeedback    = "feedback"
)

// maxWeight limits the weight of a label, so that a few labels cannot outweigh all others by mistake.
const maxWeight = 100

// Labels are the labels of requests by id. The zero value has none.
type Labels struct {
	tiers Tiers
	byID  map[string]*labelled
	Lines int // of both tiers
	Other int // lines of other tiers, which are not used
}

// labelled are the labels of one request.
type labelled struct {
	route *uint32       // nil: no label has a route
	tiers [2]tierLabels // small, large
	used  bool          // a feature line has the id
}

// tierLabels sums the labels of a request at one tier.
type tierLabels struct {
	all    tally
	random tally // of sources whose tier does not depend on the request
}

// tally sums labels.
type tally struct {
	weight float64 // of all labels
	right  float64 // of those with a right answer
}

// share returns the share of right answers, or 0 without labels.
func (t tally) share() float64 {
	if t.weight == 0 {
		return 0
	}
	return t.right / t.weight
}

func (t *tally) add(weight float64, ok bool) {
	t.weight += weight
	if ok {
		t.right += weight
	}
}

func (t *tierLabels) add(weight float64, ok, random bool) {
	t.all.add(weight, ok)
	if random {
		t.random.add(weight, ok)
	}
}

// NewLabels returns no labels of two tiers.
func NewLabels(tiers Tiers) *Labels { return &Labels{tiers: tiers, byID: map[string]*labelled{}} }

// Read adds lines of labels. An error names the line after the name of the file.
func (l *Labels) Read(name string, in io.Reader) error {
	return EachLine(name, in, maxLine, func(text []byte) error {
		var one label
		if err := Decode(text, &one); err != nil {
			return err
		}
		if err := one.check(); err != nil {
			return err
		}
		return l.add(&one)
	})
}

// check returns the first error of a label.
func (l *label) check() error {
	sources := []string{sourceReplay, sourceExploration, sourceEscalation, sourceFeedback}
	switch {
	case l.ID == "":
		return errors.New("id is missing: write the id of a feature line")
	case l.Time.IsZero():
		return ErrNoTime
	case l.Tier == "":
		return errors.New("tier is missing: write the tier that answered")
	case l.OK == nil:
		return errors.New("ok is missing: write true or false")
	case l.Weight != nil && !(*l.Weight > 0 && *l.Weight <= maxWeight):
		return fmt.Errorf("weight is out of range: write a number above 0, at most %d", maxWeight)
	case !slices.Contains(sources, l.Source):
		return fmt.Errorf("source is unknown: write one of %s", strings.Join(sources, ", "))
	}
	return nil
}

func (l *Labels) add(one *label) error {
	at := slices.Index([]string{l.tiers.Small, l.tiers.Large}, one.Tier)
	if at < 0 {
		l.Other++
		return nil
	}
	request := l.byID[one.ID]
	if request == nil {
		request = &labelled{}
		l.byID[one.ID] = request
	}
	if one.Route != "" {
		route, err := tierscore.ParseRoute(one.Route)
		switch {
		case err != nil:
			return err
		case request.route != nil && *request.route != route:
			return errors.New("route is not that of an earlier label of the id: write the route of the features")
		}
		request.route = &route
	}
	weight := 1.0
	if one.Weight != nil {
		weight = *one.Weight
	}
	request.tiers[at].add(weight, *one.OK, one.Source == sourceReplay || one.Source == sourceExploration)
	l.Lines++
	return nil
}

// ReadFeatures adds the requests of feature lines that have labels. An error names the line after the name of the file.
func (d *Data) ReadFeatures(name string, in io.Reader, labels *Labels) error {
	return EachLine(name, in, maxLine, func(text []byte) error {
		var one featureLine
		if err := Decode(text, &one); err != nil {
			return err
		}
		switch {
		case one.ID == "":
			return errors.New("id is missing: write the id of the request")
		case one.Time.IsZero():
			return ErrNoTime
		case one.Features == nil:
			return errors.New("features are missing")
		case one.Baseline == nil:
			return errors.New("baseline is missing: write the default score of the request")
		}
		d.Lines++
		request := labels.byID[one.ID]
		switch {
		case request == nil:
			return nil
		case request.used:
			return errors.New("id is that of an earlier line: keep one of them")
		case request.route != nil && *request.route != one.Features.Route():
			return errors.New("the route of the features is not that of a label of the id: correct or remove the label's route")
		}
		request.used = true
		return d.add(&one, request.tiers)
	})
}
