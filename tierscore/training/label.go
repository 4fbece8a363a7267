package training

import (
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

// index returns 0 for the small tier, 1 for the large one, else -1.
func (t Tiers) index(tier string) int { return slices.Index([]string{t.Small, t.Large}, tier) }

// label is one line of labels: whether the answer of a tier to a request was right.
type label struct {
	ID     string    `json:"id"`
	Time   Timestamp `json:"ts"`
	Route  string    `json:"route"`  // as in features; may be empty
	Tenant string    `json:"tenant"` // empty: the label is for a request of any tenant
	Tier   string    `json:"tier"`   // empty: that of the features
	OK     *bool     `json:"ok"`
	Weight *float64  `json:"weight"` // 1 if it is absent
	Source string    `json:"source"`
}

// Sources of labels. Labels of the first two are random: neither the tier nor the label's existence depends on the
// answer, because both tiers answered or the tier was selected at random. Only they are used to evaluate.
const (
	sourceReplay      = "replay"
	sourceExploration = "exploration"
	sourceEscalation  = "escalation"
	sourceFeedback    = "feedback"
)

// MaxWeight limits the weight of a label, so that a few labels cannot outweigh all others by mistake.
const MaxWeight = 100

// maxClientWeight limits the sum of the weights of a request and tier from feedback and escalations, which clients
// cause.
const maxClientWeight = 1

// Labels are the labels of requests by id, and of an id by tenant. The zero value has none.
type Labels struct {
	// EvaluateFeedback makes feedback about explored requests random, with a weight divided by the propensity. It holds if
	// clients give feedback about all answers, or independently of their quality. It is set before Join.
	EvaluateFeedback bool

	tiers     Tiers
	byID      map[string]*labelled
	Lines     int // of both tiers; before the features are read also those without a tier
	OtherTier int // lines of other tiers, which are not used
	// OtherTenant are lines of another tenant than that of the features, which are not used.
	OtherTenant int
	// Ambiguous are lines without a tenant, with an id that several tenants have. They are not used.
	Ambiguous  int
	Feedback   int // lines of the source feedback, of both tiers
	Incomplete int // lines that end early, after a crash of their writer; they are not used
}

// labelled are the labels of one id.
type labelled struct {
	given []givenLabel
	rows  []int // in Data.rows, with the id
}

// givenLabel is a label that waits for the features of its request.
type givenLabel struct {
	tenant string  // empty: the label is for a request of any tenant
	route  *uint32 // nil: the label has none
	tier   int     // index among Tiers, or unknownTier
	time   time.Time
	ok     bool
	source string
	weight float64
	lines  int // that it stands for
}

// unknownTier is the tier of a label without one: the features have it.
const unknownTier = -1

type tierLabels struct {
	all    tally
	random tally // of sources whose tier does not depend on the request
}

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
		switch err := Decode(text, &one); {
		case errors.Is(err, errIncomplete):
			l.Incomplete++
			return nil
		case err != nil:
			return err
		}
		if err := one.check(); err != nil {
			return err
		}
		return l.add(&one)
	})
}

func (l *label) check() error {
	sources := []string{sourceReplay, sourceExploration, sourceEscalation, sourceFeedback}
	switch {
	case l.ID == "":
		return errors.New("id is missing: write the id of a feature line")
	case l.Time.IsZero():
		return ErrNoTime
	case l.OK == nil:
		return errors.New("ok is missing: write true or false")
	case l.Weight != nil && !(*l.Weight > 0 && *l.Weight <= MaxWeight):
		return fmt.Errorf("weight is out of range: write a number above 0, at most %d", MaxWeight)
	case !slices.Contains(sources, l.Source):
		return fmt.Errorf("source is unknown: write one of %s", strings.Join(sources, ", "))
	}
	return nil
}

func (l *Labels) add(one *label) error {
	tier := l.tiers.index(one.Tier)
	if tier < 0 && one.Tier != "" {
		l.OtherTier++
		return nil
	}
	request := l.byID[one.ID]
	if request == nil {
		request = &labelled{}
		l.byID[one.ID] = request
	}
	given := givenLabel{tenant: one.Tenant, tier: tier, ok: *one.OK, source: one.Source, weight: 1, lines: 1,
		time: one.Time.Time}
	if one.Route != "" {
		route, err := tierscore.ParseRoute(one.Route)
		if err != nil {
			return err
		}
		for _, other := range request.given {
			if other.route != nil && *other.route != route && sameTenant(other.tenant, one.Tenant) {
				return errors.New("route is not that of an earlier label of the id: write the route of the features")
			}
		}
		given.route = &route
	}
	if one.Weight != nil {
		given.weight = *one.Weight
	}
	request.add(given)
	l.Lines++
	l.Feedback += count(one.Source == sourceFeedback)
	return nil
}

// add adds a label. Of several labels that clients cause, of one tenant, tier and source, the last one is kept.
func (l *labelled) add(given givenLabel) {
	if given.source == sourceFeedback || given.source == sourceEscalation {
		for i := range l.given {
			old := &l.given[i]
			if old.tenant == given.tenant && old.tier == given.tier && old.source == given.source {
				lines := old.lines + given.lines
				*old = *later(old, &given)
				old.lines = lines
				return
			}
		}
	}
	l.given = append(l.given, given)
}
