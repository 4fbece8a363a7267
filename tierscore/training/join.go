package training

import (
	"errors"
	"io"
	"slices"

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

// ReadFeatures adds the requests of feature lines whose ids have labels. Call Join after the last file. An error names
// the line after the name of the file.
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
		d.countKey(one.Features.Key(), one.Time.Time)
		request := labels.byID[one.ID]
		if request == nil {
			return nil
		}
		if err := request.check(&one); err != nil {
			return err
		}
		if err := d.add(&one); err != nil {
			return err
		}
		request.rows = append(request.rows, len(d.rows)-1)
		d.rows[len(d.rows)-1].answered = labels.tiers.index(one.Tier)
		return nil
	})
}

// check returns an error if a label of the request does not fit to its line of features.
func (l *labelled) check(line *featureLine) error {
	for i := range l.given {
		switch one := &l.given[i]; {
		case !sameTenant(one.tenant, line.Tenant):
		case one.route != nil && *one.route != line.Features.Route():
			return errors.New("the route of the features is not that of a label of the id: correct or remove the label's route")
		case one.tier == unknownTier && line.Tier == "":
			return errors.New("tier is missing, and a label of the id has none: write the tier that answered")
		}
	}
	return nil
}

// sameTenant reports whether two lines with one id can be about the same request. An empty tenant is any.
func sameTenant(a, b string) bool { return a == b || a == "" || b == "" }

// Join gives the requests their labels. It is called once, after the last file of features.
//
// Clients choose ids, so a request has the labels of its tenant and id. If another line of features has both too,
// neither has labels. Features of different keys cannot be compared, so only those with the key of the newest line are
// kept.
func (d *Data) Join(labels *Labels) {
	for _, request := range labels.byID {
		d.join(labels, request)
	}
	d.rows = slices.DeleteFunc(d.rows, func(one row) bool { return !one.labelled() || one.key != d.key })
	d.OtherKeys = d.Lines - d.keys[d.key]
}

func (d *Data) join(l *Labels, request *labelled) {
	lines, tenants := map[string]int{}, 0 // lines of features by tenant
	for _, i := range request.rows {
		if lines[d.rows[i].tenant]++; lines[d.rows[i].tenant] == 1 {
			tenants++
		}
	}
	var unique []int // rows with a tenant and id of their own
	for _, i := range request.rows {
		if lines[d.rows[i].tenant] == 1 && (tenants == 1 || lines[""] == 0) {
			unique = append(unique, i)
		}
	}
	d.Ambiguous += len(request.rows) - len(unique)
	given := request.given[:0]
	for _, one := range request.given {
		switch {
		case len(request.rows) > 0 && one.tenant != "" && lines[one.tenant]+lines[""] == 0:
			l.drop(&one, &l.OtherTenant)
		case one.tenant == "" && tenants > 1:
			l.drop(&one, &l.Ambiguous)
		default:
			given = append(given, one)
		}
	}
	for _, i := range unique {
		l.addTo(&d.rows[i], given)
	}
}

// addTo adds the labels of a request. A label without a tier is one of the tier that answered.
func (l *Labels) addTo(r *row, given []givenLabel) {
	var last [2]clientLabels // of each tier
	for i := range given {
		one := &given[i]
		if !sameTenant(one.tenant, r.tenant) {
			continue
		}
		tier := one.tier
		if tier == unknownTier {
			if tier = r.answered; tier < 0 {
				l.drop(one, &l.OtherTier)
				continue
			}
		}
		switch one.source {
		case sourceFeedback:
			last[tier].feedback = later(last[tier].feedback, one)
		case sourceEscalation:
			last[tier].escalation = later(last[tier].escalation, one)
		default:
			r.tiers[tier].add(one.weight, one.ok, true)
		}
	}
	for tier := range last {
		last[tier].addTo(r, tier, l.EvaluateFeedback)
	}
}

// clientLabels are the last label of each source that clients cause, of a request at one tier; nil: none.
type clientLabels struct{ feedback, escalation *givenLabel }

// later returns the label with the later time; of equal times the second one. The first may be nil.
func later(a, b *givenLabel) *givenLabel {
	if a != nil && a.time.After(b.time) {
		return a
	}
	return b
}

// addTo adds the labels to their request. The sum of their weights is at most maxClientWeight, so that no client
// outweighs the labels of others. With evaluate, feedback about the answer of an explored request is random, and its
// weight is divided by the propensity of the tier, as in inverse propensity scoring (Horvitz and Thompson, 1952), up to
// MaxWeight.
func (c clientLabels) addTo(r *row, tier int, evaluate bool) {
	sum := 0.0
	for _, one := range []*givenLabel{c.feedback, c.escalation} {
		if one != nil {
			sum += min(one.weight, maxClientWeight)
		}
	}
	scale := maxClientWeight / max(sum, maxClientWeight)
	if c.escalation != nil {
		r.tiers[tier].add(scale*min(c.escalation.weight, maxClientWeight), c.escalation.ok, false)
	}
	if c.feedback == nil {
		return
	}
	weight := scale * min(c.feedback.weight, maxClientWeight)
	explored := r.explored > 0 && tier == r.answered
	random := evaluate && explored
	r.unevaluated = r.unevaluated || explored && !evaluate
	if random {
		weight = min(weight/r.explored, MaxWeight)
	}
	r.tiers[tier].add(weight, c.feedback.ok, random)
}

// drop counts the lines of a label as lines that are not used.
func (l *Labels) drop(one *givenLabel, as *int) {
	l.Lines -= one.lines
	l.Feedback -= one.lines * count(one.source == sourceFeedback)
	*as += one.lines
}
