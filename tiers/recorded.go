package tiers

import (
	"math"
	"slices"
)

// Missing is what a record lacks, so that the target of its request cannot be decided again.
type Missing string

// What a record can lack.
const (
	MissingNothing  Missing = ""
	MissingKeywords Missing = "keywords" // groups that are new or have other expressions by now
	MissingScore    Missing = "score"    // the length of the text, or its groups, because it was not classified
	MissingScores   Missing = "scores"   // of earlier requests: classifier.share has not started
	MissingModel    Missing = "model"    // the score of the model that decides
)

// ResolveRecorded resolves a recorded request from its evidence. No text is available; the
// recorded keyword groups count as matched. Without q.Recent, the recorded thresholds on the score
// take the place of those of classifier.share. q.Input has its tokens, chat and time. Count is
// called if the tokens were not counted then, perhaps more than once; User and System are not
// called.
//
// unknown has the groups that are not in the record because they are new or have other
// expressions by now. For a request that was not classified, every group is unknown, and so is its
// score if it depends on the length. With q.Recent, the thresholds of classifier.share are unknown if
// a group is unknown, because the earlier scores lack its weight, and before there are enough earlier
// scores. If the target depends on what is unknown, missing says on what, and the resolution is that
// of a text that matches no unknown group and has the lowest score, or is decided by keyword_score if
// only earlier scores are missing. An unknown score is not in q.Pending.
func (k *Catalog) ResolveRecorded(q Query, was *Evidence, unknown []string) (
	v Resolution, missing Missing, err error,
) {
	var f ClassifierInput
	if q.Input != nil {
		f = *q.Input
	}
	lowest, highest := k.classifier.groupsOf(was, unknown)
	low := recorded{groups: lowest, userBytes: was.UserBytes, score: was.Score, model: was.Model}
	high := low
	high.groups = highest
	f.recorded = &low
	if was.Counted > 0 {
		f.Count = func() (int64, bool) { return was.Counted, true }
	}
	q.Input = &f
	missing = k.missingFrom(q, was, len(highest) > len(lowest))
	if missing != MissingNothing && (missing != MissingKeywords || k.classifier.grading.rule == ruleShare) {
		low.bound, high.bound = math.Inf(1), belowAllScores
	}
	// sameTargetWith comes first, because Resolve changes the memory of chats
	// that it reads.
	started := missing != MissingScores
	if missing != MissingNothing && k.sameTargetWith(q, &high) {
		missing = MissingNothing
	}
	if !started {
		low.bound = 0 // the score is known, and belongs to the window
	}
	v, err = k.Resolve(q)
	return v, missing, err
}

// missingFrom returns what the classification of a record lacks, whether or not the target depends on it.
func (k *Catalog) missingFrom(q Query, was *Evidence, unknownGroups bool) Missing {
	g := &k.classifier.grading
	switch {
	case g.rule != "" && !was.Classified && (g.lengthWeight > 0 || k.classifier.model.decides()):
		return MissingScore
	case k.classifier.model.decides() && (was.Model == nil || was.Model.Model != k.classifier.model.name()):
		return MissingModel
	case unknownGroups:
		return MissingKeywords
	case g.rule == ruleShare && q.Recent != nil && !k.startedShare(q):
		return MissingScores
	}
	return MissingNothing
}

// startedShare reports whether the window of a request has enough scores, or the request needs none.
func (k *Catalog) startedShare(q Query) bool {
	var e Evidence
	q.Chats, q.Evidence, q.Pending, q.Report, q.Moves = q.Chats.ReadOnly(), &e, nil, nil, nil
	if _, err := k.Resolve(q); err != nil || e.Score == nil {
		return true
	}
	return len(e.Score.Thresholds) > 0
}

// sameTargetWith reports whether the target is the same with another record.
func (k *Catalog) sameTargetWith(q Query, other *recorded) bool {
	more := *q.Input
	more.recorded = other
	q.Chats, q.Moves = q.Chats.ReadOnly(), nil
	low, lowErr := k.Resolve(q)
	q.Input = &more
	high, highErr := k.Resolve(q)
	return low.Target == high.Target && (lowErr == nil) == (highErr == nil)
}

// groupsOf returns the groups that a recorded request matches at least, and at most if all
// unknown ones match.
func (k *Classifier) groupsOf(was *Evidence, unknown []string) (lowest, highest []string) {
	for _, g := range k.matcher.groups {
		open := !was.Classified || slices.Contains(unknown, g.name)
		if !open && !slices.Contains(was.Groups, g.name) {
			continue
		}
		if highest = append(highest, g.name); !open {
			lowest = append(lowest, g.name)
		}
	}
	return lowest, highest
}

// NewGroups returns the keyword groups that records made under another classifier cannot
// contain: those that it does not have, or has with other expressions or sources. Tier and
// weight of a group do not matter.
func (k *Classifier) NewGroups(made *Classifier) []string {
	var names []string
	for i, g := range k.matcher.groups {
		j := slices.IndexFunc(made.matcher.groups, func(other group) bool { return other.name == g.name })
		if j < 0 || made.matcher.groups[j].in != g.in || !slices.Equal(k.matcher.patterns(i), made.matcher.patterns(j)) {
			names = append(names, g.name)
		}
	}
	slices.Sort(names)
	return names
}

// patterns returns the expressions of a group, sorted, because their order does not matter.
func (m *matcher) patterns(group int) []string {
	var all []string
	for _, e := range m.expressions {
		if e.group == group {
			all = append(all, e.match.String())
		}
	}
	slices.Sort(all)
	return all
}

// recorded replaces the texts of a request that are no longer available.
type recorded struct {
	groups    []string
	userBytes int
	score     *Scored
	model     *ModelScore
	bound     float64 // in place of the threshold of each tier, if the score is unknown; 0: it is known
}

func (s *search) restoreGroups(r *recorded) {
	for i := range s.m.groups {
		s.matched[i] = slices.Contains(r.groups, s.m.groups[i].name)
	}
	s.userBytes = r.userBytes
}
