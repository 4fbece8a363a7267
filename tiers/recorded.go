package tiers

import "slices"

// ResolveRecorded resolves a recorded request from its evidence. No text is available; the
// recorded keyword groups count as matched. Without q.Recent, the recorded thresholds on the score
// take the place of those of classifier.share. q.Input has its tokens, chat and time. Count is
// called if the tokens were not counted then, perhaps more than once; User and System are not
// called.
//
// unknown has the groups that are not in the record because they are new or have other
// expressions by now. For a request that was not classified, every group is unknown. If the
// target depends on unknown groups, known is false, and the resolution is that of a text that
// matches none of them.
func (k *Catalog) ResolveRecorded(q Query, was *Evidence, unknown []string) (v Resolution, known bool, err error) {
	var f ClassifierInput
	if q.Input != nil {
		f = *q.Input
	}
	least, most := k.classifier.groupsOf(was, unknown)
	f.recorded = &recorded{groups: least, userBytes: was.UserBytes, score: was.Score}
	if was.Counted > 0 {
		f.Count = func() (int64, bool) { return was.Counted, true }
	}
	q.Input = &f
	// sameTargetWith comes first, because Resolve changes the memory of chats
	// that it reads.
	known = true
	if len(most) > len(least) {
		known = k.sameTargetWith(q, most)
	}
	v, err = k.Resolve(q)
	return v, known, err
}

// sameTargetWith reports whether the target is the same whether the unknown groups match or
// not.
func (k *Catalog) sameTargetWith(q Query, most []string) bool {
	more := *q.Input
	was := q.Input.recorded
	more.recorded = &recorded{groups: most, userBytes: was.userBytes, score: was.score}
	q.Chats, q.Recent = q.Chats.ReadOnly(), q.Recent.ReadOnly()
	low, lowErr := k.Resolve(q)
	q.Input = &more
	high, highErr := k.Resolve(q)
	return low.Target == high.Target && (lowErr == nil) == (highErr == nil)
}

// groupsOf returns the groups that a recorded request matches at least, and at most if all
// unknown ones match.
func (k *Classifier) groupsOf(was *Evidence, unknown []string) (least, most []string) {
	for _, g := range k.matcher.groups {
		open := !was.Classified || slices.Contains(unknown, g.name)
		if !open && !slices.Contains(was.Groups, g.name) {
			continue
		}
		if most = append(most, g.name); !open {
			least = append(least, g.name)
		}
	}
	return least, most
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
}

// restoreGroups marks the recorded groups as matched.
func (s *search) restoreGroups(r *recorded) {
	for i := range s.m.groups {
		s.matched[i] = slices.Contains(r.groups, s.m.groups[i].name)
	}
	s.userBytes = r.userBytes
}
