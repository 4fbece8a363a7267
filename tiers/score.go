package tiers

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Rules of tiers that numbers selected.
const (
	rulePrompt = "prompt_tokens"
	ruleOutput = "max_tokens"
	ruleScore  = "score" // by the thresholds of classifier.score
	ruleShare  = "share" // by those of classifier.share
)

// defaultLengthWeight makes a doubling of the length count as much as a group of weight 1.
// bench/classify measures it.
const defaultLengthWeight = 1

// Shares of preset graded. With a tenth for the last tier as the only strong one, no measured set is worse than the
// same share at random by more than 0.23 points of 100 or 0.06 of 10 (lower 95 % bounds). With a fifth, exam questions
// without choices may lose 0.3, and with the second tier as strong as the last, 0.5 (docs/tiers.md).
const (
	lastShare   = 0.1
	secondShare = 0.3
)

// grading is the compiled score, share and length_weight. It is immutable.
type grading struct {
	lengthWeight float64
	rule         string       // score, share, or empty: no score selects a tier
	tiers        []gradedTier // above the default, highest first
	rest         gradedNotes  // of a score that selects none of them
	later        gradedNote   // of a window with less than minScores scores
	byModel      bool         // share is about the model's score
	scoring      uint64       // of hashScoring; windows with different hashes are separate
}

// gradedTier is a tier that scores select.
type gradedTier struct {
	tier  int
	value float64     // the score that must be exceeded, or the share of prompts for this tier and higher ones
	notes gradedNotes // of a score that selects it
}

// gradedNote is a note about the score, joined with each note about max_tokens, which is the key; alone, the
// key is empty. They are joined here, because a join allocates.
type gradedNote map[string]string

// gradedNotes are two notes: about a score, and about the default score of a request for which the model has none.
type gradedNotes [2]gradedNote

func newGradedNote(text string) gradedNote {
	n := gradedNote{"": text}
	for _, output := range []string{noteRequired, noteTools, noteCeiling, noteDefault, noteTitle} {
		n[output] = text + "; " + output
	}
	return n
}

// newGrading compiles score, share and length_weight for tiers above the default one.
func (c *checker) newGrading(rules Rules, preset string, defaultTier int, model *Model) grading {
	g := grading{lengthWeight: defaultLengthWeight,
		later: newGradedNote(fmt.Sprintf("share starts after %d prompts", minScores))}
	if rules.LengthWeight != nil {
		g.lengthWeight = *rules.LengthWeight
	}
	share := rules.Share
	if share == nil && preset == presetGraded && len(rules.Score) == 0 {
		if share = c.gradedShares(defaultTier); len(share) == 0 && len(c.tiers) > 1 && rules.Preset != "" {
			c.addWarning("classifier.preset", "graded has no effect: no tier is above the default tier %q: "+
				"lower classifier.default, or write preset: groups", c.tiers[max(defaultTier, 0)])
		}
	}
	switch {
	case len(rules.Score) > 0 && len(share) > 0:
		c.addError("classifier.score", "both score and share are given, and only one can select the tier: remove one of them")
	case len(rules.Score) > 0:
		c.addScores(&g, rules, defaultTier)
	case len(share) > 0:
		c.addShares(&g, share, defaultTier, model)
	case rules.LengthWeight != nil:
		c.addWarning("classifier.length_weight", "has no effect without scores: add score or share, or remove it")
	}
	return g
}

// gradedShares returns the shares of preset graded.
func (c *checker) gradedShares(defaultTier int) map[string]float64 {
	n, share := len(c.tiers), map[string]float64{}
	add := func(tier int, of float64) {
		if tier > defaultTier && slices.Index(c.tiers, c.tiers[tier]) == tier { // a repeated name is another mistake
			share[c.tiers[tier]] = of
		}
	}
	if n > 2 {
		add(1, secondShare)
	}
	if n > 1 {
		add(n-1, lastShare)
	}
	return share
}

// gradedTiers returns the entries of a section for tiers above the default one, highest tier first.
func (c *checker) gradedTiers(key string, section map[string]float64, defaultTier int) (above []threshold[float64]) {
	for _, t := range thresholds(c, key, section) {
		switch {
		case t.tier > defaultTier:
			above = append(above, t)
		case t.tier == defaultTier:
			c.addError(key+"."+c.tiers[t.tier], "%q is the default tier, which gets all other prompts: remove it",
				c.tiers[t.tier])
		default:
			c.addError(key+"."+c.tiers[t.tier], "%s selects only tiers above the default tier %q: remove it, "+
				"or lower classifier.default", strings.TrimPrefix(key, "classifier."), c.tiers[defaultTier])
		}
	}
	return above
}

func (c *checker) addScores(g *grading, rules Rules, defaultTier int) {
	const key = "classifier.score"
	if len(rules.KeywordScore) > 0 {
		c.addWarning("classifier.keyword_score",
			"has no effect beside classifier.score, which selects the tier: remove one of them")
	}
	highest, lowest := c.highestScore(g.lengthWeight), math.Inf(1)
	g.rule = ruleScore
	for _, t := range c.gradedTiers(key, rules.Score, defaultTier) {
		at := key + "." + c.tiers[t.tier]
		switch {
		case t.over >= highest:
			c.addWarning(at, "cannot be exceeded: the highest possible score is %.4g: lower the score, or add keywords", highest)
		case t.over >= lowest:
			c.addWarning(at, "has no effect: a higher tier is already selected above %v: set a lower value, or remove it",
				lowest)
		}
		lowest = min(lowest, t.over)
		g.tiers = append(g.tiers, gradedTier{tier: t.tier, value: t.over,
			notes: gradedNotes{newGradedNote("above " + number(t.over))}})
		g.rest = gradedNotes{newGradedNote("not above " + number(t.over))}
	}
}

// highestScore returns the score of the longest text that matches all groups.
func (c *checker) highestScore(lengthWeight float64) float64 {
	sum := 0.0
	for _, g := range c.groups {
		sum += g.weight
	}
	return sum + lengthWeight*math.Log2(1+2*TextLimit+utf8.UTFMax)
}

// addShares compiles shares of prompts.
func (c *checker) addShares(g *grading, share map[string]float64, defaultTier int, model *Model) {
	const key = "classifier.share"
	sum := 0.0
	g.rule = ruleShare
	scores := []string{"score"}
	if g.byModel = model.decides(); g.byModel {
		scores = []string{"model score", "default score"}
	}
	for _, t := range c.gradedTiers(key, share, defaultTier) {
		sum += t.over
		highest := "the highest " + number(100*sum) + " %"
		graded := gradedTier{tier: t.tier, value: sum}
		for i, score := range scores {
			graded.notes[i] = newGradedNote(score + " among " + highest)
			g.rest[i] = newGradedNote(score + " below " + highest)
		}
		g.tiers = append(g.tiers, graded)
	}
	if sum > 1+1e-9 { // the sum of written decimals is off by about 1e-16 each
		c.addError(key, "the shares sum to %s: lower them until they sum to at most 1", number(sum))
	}
	if g.lengthWeight == 0 && len(c.groups) == 0 && !g.byModel {
		c.addWarning(key, "has no effect: all scores are 0 (add keywords, or raise length_weight)")
	}
	g.scoring = c.hashScoring(g.lengthWeight, model)
}

// hashScoring returns a hash of everything that a score depends on: length_weight, the groups, and a model that
// decides.
func (c *checker) hashScoring(lengthWeight float64, model *Model) uint64 {
	h := fnv.New64a()
	if model.decides() {
		fmt.Fprintf(h, "%s ", model.Hash)
	}
	fmt.Fprintf(h, "%v", lengthWeight)
	for i, g := range c.groups {
		fmt.Fprintf(h, " %q %v %d", g.name, g.weight, g.in)
		for _, e := range c.expressions {
			if e.group == i {
				fmt.Fprintf(h, " %q", e.match.String())
			}
		}
	}
	return h.Sum64()
}

// number formats a number of the configuration without the rounding error of a sum.
func number(n float64) string { return strconv.FormatFloat(n, 'g', 6, 64) }

// score returns the score of a searched request. It is rounded to thousandths, so that a record shows
// it whole, and a replay on another processor computes the same.
func (g *grading) score(s *search) float64 {
	return math.Round(1000*(s.weight(0)+g.lengthWeight*math.Log2(1+float64(s.userBytes)))) / 1000
}

// note returns the note about the score of a classified request, and output, the note about max_tokens, if it is not
// empty.
func (g *grading) note(class Classification, s *search, output string) string {
	by := 0
	if g.byModel && !s.scores.Model.Known {
		by = 1
	}
	switch {
	case g.rule == ruleShare && len(s.thresholds) == 0 && class.Rule != rulePrompt && class.Rule != ruleOutput:
		return g.later[output]
	case g.rule == "" || class.Rule != g.rule:
		return output
	}
	for _, t := range g.tiers {
		if t.tier == class.Tier {
			return t.notes[by][output]
		}
	}
	return g.rest[by][output]
}

// freezeThresholds sets the thresholds that decide the request: those of the configuration, of its
// record, or of the earlier scores of its window.
func (k *Classifier) freezeThresholds(f *ClassifierInput, at windowSource, s *search) {
	g := &k.grading
	switch {
	case g.rule == "":
	case f.recorded != nil && f.recorded.bound != 0:
		for _, t := range g.tiers {
			s.thresholds = append(s.thresholds, threshold[float64]{t.tier, f.recorded.bound})
		}
	case g.rule == ruleScore:
		for _, t := range g.tiers {
			s.thresholds = append(s.thresholds, threshold[float64]{t.tier, t.value})
		}
	case at.recent != nil:
		s.thresholds = at.recent.appendThresholds(s.thresholds, k.windowOf(f, at), g.tiers)
	case f.recorded != nil:
		s.thresholds = k.recordedThresholds(f.recorded.score, s.thresholds)
	}
}

// windowOf returns the window of a request.
func (k *Classifier) windowOf(f *ClassifierInput, at windowSource) windowKey {
	return windowKey{at.alias, f.Tenant, k.grading.scoring}
}

// pending returns the score of a searched request for its window. Add ignores it if the rules need none, or the
// record of the request has not enough to compute it.
func (k *Classifier) pending(f *ClassifierInput, at windowSource, s *search) PendingScore {
	if k.grading.rule != ruleShare || f.recorded != nil && f.recorded.bound != 0 {
		return PendingScore{Scores: s.scores}
	}
	return PendingScore{s.scores, k.windowOf(f, at), s.score, true}
}

// recordedThresholds appends the recorded thresholds to an empty list, unless one of a tier is missing, or they are
// about another score.
func (k *Classifier) recordedThresholds(was *Scored, to []threshold[float64]) []threshold[float64] {
	if was == nil || was.Model != k.orderedBy() { // thresholds on another score
		return to
	}
	for _, t := range k.grading.tiers {
		i := slices.IndexFunc(was.Thresholds, func(r TierScore) bool { return r.Tier == k.tiers[t.tier] })
		if i < 0 {
			return to[:0]
		}
		to = append(to, threshold[float64]{t.tier, was.Thresholds[i].Score})
	}
	return to
}

// scored returns the score of a classified request for its record; nil if the rules select no tier by scores.
func (k *Classifier) scored(s *search) *Scored {
	if k.grading.rule == "" {
		return nil
	}
	to := &Scored{Value: s.score, Model: k.orderedBy()}
	if len(s.thresholds) > 0 {
		to.Thresholds = make([]TierScore, 0, len(s.thresholds)) // the capacity counts in the memory of records
	}
	for _, t := range s.thresholds {
		to.Thresholds = append(to.Thresholds, TierScore{Tier: k.tiers[t.tier], Score: t.over})
	}
	return to
}

// String returns the score with its thresholds, if it has any, for an explanation.
func (s *Scored) String() string {
	text := "score " + number(s.Value)
	if s.Model != "" {
		text += " on the scale of model " + s.Model
	}
	for i, t := range s.Thresholds {
		text += []string{"; thresholds: ", ", "}[min(i, 1)] + t.Tier + " above " + number(t.Score)
	}
	return text
}

// HasShares reports whether classifier.share selects tiers.
func (k *Classifier) HasShares() bool { return k.grading.rule == ruleShare }

// HasSameThresholds reports whether two classifiers compute the same thresholds of classifier.share from the same
// requests. A classifier without share needs none, and is the same as any other.
func (k *Classifier) HasSameThresholds(other *Classifier) bool {
	a, b := &k.grading, &other.grading
	if a.rule != ruleShare {
		return true
	}
	return b.rule == ruleShare && a.scoring == b.scoring && slices.EqualFunc(a.tiers, b.tiers, func(x, y gradedTier) bool {
		return k.tiers[x.tier] == other.tiers[y.tier] && x.value == y.value
	})
}
