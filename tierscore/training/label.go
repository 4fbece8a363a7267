package training

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"tierway/tierscore"
)

// maxLine limits a line of features or labels in bytes. Features have at most 6 KB.
const maxLine = 1 << 20

// Tiers are the names of the two tiers that labels compare.
type Tiers struct{ Small, Large string }

// label is one line of labels: whether the answer of a tier to a request was right.
type label struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"ts"`
	Route  string    `json:"route"` // as in features; may be empty
	Tenant string    `json:"tenant"`
	Tier   string    `json:"tier"`
	OK     *bool     `json:"ok"`
	Weight *float64  `json:"weight"` // 1 if it is absent
	Source string    `json:"source"`
}

// featureLine is one line of features.
type featureLine struct {
	ID       string              `json:"id"`
	Time     time.Time           `json:"ts"`
	Baseline *float64            `json:"baseline"` // the default score
	Features *tierscore.Features `json:"features"`
}

// Sources of labels. Of the first two, the tier does not depend on the request: both tiers answered, or chance selected
// one. Only they are used to evaluate.
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
	of    map[string]*labelled
	Lines int // of both tiers
	Other int // lines of other tiers, which are not used
}

// labelled are the labels of one request.
type labelled struct {
	route string
	sides [2]side // small, large
	used  bool    // a feature line has the id
}

// side sums the labels of a request at one tier.
type side struct {
	weight float64 // of all labels
	right  float64 // of those with a right answer
	chance bool    // a label is of a source whose tier does not depend on the request
}

// NewLabels returns no labels of two tiers.
func NewLabels(tiers Tiers) *Labels { return &Labels{tiers: tiers, of: map[string]*labelled{}} }

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
		return errors.New("ts is missing: write a time such as 2026-01-31T12:00:00Z")
	case l.Tier == "":
		return errors.New("tier is missing: write the tier that answered")
	case l.OK == nil:
		return errors.New("ok is missing: write true or false")
	case l.Weight != nil && !(*l.Weight > 0 && *l.Weight <= maxWeight):
		return fmt.Errorf("weight %g: write a number above 0, at most %d", *l.Weight, maxWeight)
	case !slices.Contains(sources, l.Source):
		return fmt.Errorf("source %q: write one of %s", l.Source, strings.Join(sources, ", "))
	}
	if l.Route != "" {
		_, err := tierscore.ParseRoute(l.Route)
		return err
	}
	return nil
}

func (l *Labels) add(one *label) error {
	at := slices.Index([]string{l.tiers.Small, l.tiers.Large}, one.Tier)
	if at < 0 {
		l.Other++
		return nil
	}
	of := l.of[one.ID]
	if of == nil {
		of = &labelled{}
		l.of[one.ID] = of
	}
	if of.route != "" && one.Route != "" && of.route != one.Route {
		return fmt.Errorf("route %s: an earlier label of the id has %s", one.Route, of.route)
	}
	if one.Route != "" {
		of.route = one.Route
	}
	weight := 1.0
	if one.Weight != nil {
		weight = *one.Weight
	}
	s := &of.sides[at]
	s.weight += weight
	if *one.OK {
		s.right += weight
	}
	s.chance = s.chance || one.Source == sourceReplay || one.Source == sourceExploration
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
			return errors.New("ts is missing: write a time such as 2026-01-31T12:00:00Z")
		case one.Features == nil:
			return errors.New("features are missing")
		case one.Baseline == nil:
			return errors.New("baseline is missing: write the default score of the request")
		}
		d.Lines++
		of := labels.of[one.ID]
		if of == nil {
			return nil
		}
		if of.used {
			return fmt.Errorf("id %q: an earlier line has it; keep one of them", one.ID)
		}
		of.used = true
		if of.route != "" {
			if route, err := tierscore.ParseRoute(of.route); err != nil || route != one.Features.Route() {
				return fmt.Errorf("the route of the features is %08x, and a label of the id has %s", one.Features.Route(), of.route)
			}
		}
		return d.add(&one, of.sides)
	})
}

// Decode reads one JSON object without unknown fields.
func Decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.InputOffset() != int64(len(text)) {
		return errors.New("text follows the JSON object: write one object per line")
	}
	return nil
}

// EachLine calls read for each line that is not blank, of at most limit bytes. An error names the line after the name of
// the file.
func EachLine(name string, in io.Reader, limit int, read func(text []byte) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, limit)
	n := 0
	for lines.Scan() {
		n++
		if text := bytes.TrimSpace(lines.Bytes()); len(text) > 0 {
			if err := read(text); err != nil {
				return fmt.Errorf("%s:%d: %w", name, n, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	return nil
}
