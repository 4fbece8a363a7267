package training

import (
	"errors"
	"io"

	"tierway/tierscore"
)

// featureLine is one line of features. A gateway writes all fields; `tierway features` writes no answer.
type featureLine struct {
	ID       string    `json:"id"`
	Time     Timestamp `json:"ts"`
	Tenant   string    `json:"tenant"`
	Tier     string    `json:"tier"` // that answered; empty: unknown
	Rule     string    `json:"rule"` // not used
	Explored *float64  `json:"explored"`
	Baseline *float64  `json:"baseline"` // the default score
	// Model is the score of the model that the gateway had. It is not used.
	Model    *float64            `json:"model"`
	Features *tierscore.Features `json:"features"`
}

// check returns the first error of a line of features.
func (l *featureLine) check() error {
	switch {
	case l.ID == "":
		return errors.New("id is missing: write the id of the request")
	case l.Time.IsZero():
		return ErrNoTime
	case l.Features == nil:
		return errors.New("features are missing: write the object that tierway features prints")
	case l.Baseline == nil:
		return errors.New("baseline is missing: write the default score of the request")
	case l.Explored != nil && !(*l.Explored > 0 && *l.Explored <= 1):
		return errors.New("explored is out of range: write a probability above 0, at most 1")
	}
	return nil
}

// ReadFeatures adds the requests of feature lines that have labels. An error names the line after the name of the file.
//
// An id of several lines is ambiguous, because clients may choose ids: none of its requests has labels.
func (d *Data) ReadFeatures(name string, in io.Reader, labels *Labels) error {
	return EachLine(name, in, maxLine, func(text []byte) error {
		var one featureLine
		switch err := Decode(text, &one); {
		case errors.Is(err, errIncomplete):
			d.Incomplete++
			return nil
		case err != nil:
			return err
		}
		if err := one.check(); err != nil {
			return err
		}
		d.Lines++
		d.countTier(one.Tier)
		request := labels.byID[one.ID]
		switch {
		case request == nil:
			return nil
		case request.used:
			d.dropAmbiguous(request)
			return nil
		case request.route != nil && *request.route != one.Features.Route():
			return errors.New("the route of the features is not that of a label of the id: correct or remove the label's route")
		}
		request.used, request.row = true, len(d.rows)
		joined, err := labels.join(&one, request)
		if err != nil {
			return err
		}
		return d.add(&one, joined)
	})
}

// dropAmbiguous removes the labels of the first request with an id that another line has too.
func (d *Data) dropAmbiguous(request *labelled) {
	d.Ambiguous++
	d.rows[request.row].tiers = [2]tierLabels{}
}

// join returns the labels of a request. A label without a tier is one of the tier that answered.
func (l *Labels) join(line *featureLine, request *labelled) (joined [2]tierLabels, err error) {
	for _, one := range request.given {
		if one.tenant != "" && line.Tenant != "" && one.tenant != line.Tenant {
			l.drop(&one, &l.OtherTenant)
			continue
		}
		if one.tier == unknownTier {
			if line.Tier == "" {
				return joined, errors.New("tier is missing, and a label of the id has none: write the tier that answered")
			}
			if one.tier = l.tiers.index(line.Tier); one.tier < 0 {
				l.drop(&one, &l.OtherTier)
				continue
			}
		}
		weight, random := one.weightOf(line, one.tier == l.tiers.index(line.Tier))
		joined[one.tier].add(weight, one.ok, random)
	}
	return joined, nil
}

// drop counts a label that was read as one that is not used.
func (l *Labels) drop(one *givenLabel, as *int) {
	l.Lines--
	l.Feedback -= count(one.source == sourceFeedback)
	*as++
}

// weightOf returns the weight of a label, and whether its tier is random. Feedback about the answer of an explored
// request is a label of the source exploration. Its weight is divided by the propensity of the tier, as in inverse
// propensity scoring (Horvitz and Thompson, 1952), up to MaxWeight.
func (g *givenLabel) weightOf(line *featureLine, answered bool) (weight float64, random bool) {
	if g.source == sourceFeedback && line.Explored != nil && answered {
		return min(g.weight / *line.Explored, MaxWeight), true
	}
	return g.weight, g.source == sourceReplay || g.source == sourceExploration
}
