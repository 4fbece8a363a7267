package tiers

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Rules of tiers that the score selected.
const (
	ruleScore = "score" // by the thresholds of classifier.score
	ruleShare = "share" // by those of classifier.share
)

// defaultLengthWeight makes a doubling of the length count as much as a group of weight 1.
// bench/classify measures it.
const defaultLengthWeight = 1

// Shares of preset graded. The strong model's lead is mostly on a fifth of the prompts, and half of
// the prompts stay at the first tier.
const (
	lastShare   = 0.2
	secondShare = 0.3
)

// noteShareLater is the note of a Classification before minScores scores are known.
const noteShareLater = "share starts after 200 prompts"

// grading is how scores select tiers. It is immutable.
type grading struct {
	lengthWeight float64
	rule         string       // score, share, or empty: no score selects a tier
	tiers        []gradedTier // above the default, highest first
	rest         string       // note of a score that selects none of them
	scoring      uint64       // hash of all that a score depends on besides the text, for share
}

// gradedTier is a tier that scores select.
type gradedTier struct {
	tier  int
	value float64 // the score that must be exceeded, or the share of prompts for this tier and higher ones
	note  string  // of a score that selects it
}

// newGrading compiles score, share and length_weight for tiers above the default one.
func (c *checker) newGrading(rules Rules, preset string, defaultTier int) grading {
	g := grading{lengthWeight: defaultLengthWeight}
	if rules.LengthWeight != nil {
		g.lengthWeight = *rules.LengthWeight
	}
	share := rules.Share
	if share == nil && preset == "graded" && len(rules.Score) == 0 {
		share = c.gradedShares(defaultTier)
	}
	switch {
	case len(rules.Score) > 0 && len(share) > 0:
		c.addError("classifier.score", "both score and share are given, and only one can select the tier: remove one of them")
	case len(rules.Score) > 0:
		c.addScores(&g, rules, defaultTier)
	case len(share) > 0:
		c.addShares(&g, share, defaultTier)
	case rules.LengthWeight != nil:
		c.addWarning("classifier.length_weight", "has no effect without scores: add score or share, or remove it")
	}
	return g
}

// gradedShares returns the shares of preset graded.
func (c *checker) gradedShares(defaultTier int) map[string]float64 {
	n, share := len(c.tiers), map[string]float64{}
	if n > 2 && defaultTier < 1 {
		share[c.tiers[1]] = secondShare
	}
	if n > 1 && defaultTier < n-1 {
		share[c.tiers[n-1]] = lastShare
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
			c.addError(key+"."+c.tiers[t.tier], "no request goes below the default tier %q: remove it, "+
				"or lower classifier.default", c.tiers[defaultTier])
		}
	}
	return above
}

// addScores compiles fixed thresholds.
func (c *checker) addScores(g *grading, rules Rules, defaultTier int) {
	const key = "classifier.score"
	if len(rules.KeywordScore) > 0 {
		c.addWarning("classifier.keyword_score",
			"has no effect beside classifier.score, which selects the tier: remove one of them")
	}
	most, lowest := c.highestScore(g.lengthWeight), math.Inf(1)
	g.rule = ruleScore
	for _, t := range c.gradedTiers(key, rules.Score, defaultTier) {
		at := key + "." + c.tiers[t.tier]
		switch {
		case t.over >= most:
			c.addWarning(at, "cannot be exceeded: the highest possible score is %.4g: lower the score, or add keywords", most)
		case t.over >= lowest:
			c.addWarning(at, "has no effect: a higher tier is already selected above %v: set a lower value, or remove it",
				lowest)
		}
		lowest = min(lowest, t.over)
		g.tiers = append(g.tiers, gradedTier{tier: t.tier, value: t.over, note: "above " + number(t.over)})
		g.rest = "not above " + number(t.over)
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
func (c *checker) addShares(g *grading, share map[string]float64, defaultTier int) {
	const key = "classifier.share"
	sum := 0.0
	g.rule = ruleShare
	for _, t := range c.gradedTiers(key, share, defaultTier) {
		sum += t.over
		highest := "the highest " + number(100*sum) + " %"
		g.tiers = append(g.tiers, gradedTier{tier: t.tier, value: sum, note: "score among " + highest})
		g.rest = "score below " + highest
	}
	if sum > 1+1e-9 { // the sum of written decimals is off by about 1e-16 each
		c.addError(key, "the shares sum to %s: lower them until they sum to at most 1", number(sum))
	}
	g.scoring = c.hashScoring(g.lengthWeight)
}

// hashScoring returns a hash of all that the score of a text depends on. Scores of different hashes
// cannot be compared.
func (c *checker) hashScoring(lengthWeight float64) uint64 {
	h := fnv.New64a()
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

// note returns the note about the score; decides means that there were thresholds on it.
func (g *grading) note(class Classification, decides bool) string {
	switch {
	case g.rule == ruleShare && !decides:
		return noteShareLater
	case g.rule == "" || class.Rule != g.rule:
		return ""
	}
	for _, t := range g.tiers {
		if t.tier == class.Tier {
			return t.note
		}
	}
	return g.rest
}

// joinNotes returns two notes, each of which may be empty, as one.
func joinNotes(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// freezeThresholds sets the thresholds that decide the request: those of the configuration, of its
// record, or of the earlier scores of its route, to which it adds its own score.
func (k *Classifier) freezeThresholds(f *ClassifierInput, at scoreRoute, s *search) {
	g := &k.grading
	switch {
	case g.rule == ruleScore:
		for _, t := range g.tiers {
			s.thresholds = append(s.thresholds, threshold[float64]{t.tier, t.value})
		}
	case g.rule != ruleShare:
	case at.recent != nil:
		s.thresholds = at.recent.addScore(windowKey{at.alias, f.Tenant, g.scoring}, g.tiers, s.score, s.thresholds)
	case f.recorded != nil:
		s.thresholds = k.recordedThresholds(f.recorded.score, s.thresholds)
	}
}

// recordedThresholds appends the recorded thresholds to an empty list, unless one of a tier is missing.
func (k *Classifier) recordedThresholds(was *Scored, to []threshold[float64]) []threshold[float64] {
	if was == nil {
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
	to := &Scored{Value: s.score}
	for _, t := range s.thresholds {
		to.Thresholds = append(to.Thresholds, TierScore{Tier: k.tiers[t.tier], Score: t.over})
	}
	return to
}

// SharesAs reports whether two classifiers make the same thresholds of the same requests, or none.
func (k *Classifier) SharesAs(other *Classifier) bool {
	a, b := &k.grading, &other.grading
	if a.rule != ruleShare {
		return true
	}
	return b.rule == ruleShare && a.scoring == b.scoring && slices.EqualFunc(a.tiers, b.tiers, func(x, y gradedTier) bool {
		return k.tiers[x.tier] == other.tiers[y.tier] && x.value == y.value
	})
}
