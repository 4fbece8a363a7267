package tiers

import "slices"

// ResolveRecorded says where a request goes of which only the evidence is left: no
// text is there to be looked at, and the keyword groups count as matched that
// matched then. q.Features holds its tokens, chat and time. Its Count is asked where
// the tokens were not counted then, perhaps more than once; User and System are not.
//
// What the groups named in unknown would say is not in the record, because they
// are new or look for something else by now; of a request that was not classified
// then it is what any group would. If the target depends on them, known is false,
// and the verdict is that of a text that none of them matches.
func (k *Catalog) ResolveRecorded(q Query, was *Evidence, unknown []string) (v Resolution, known bool, err error) {
	var f Features
	if q.Features != nil {
		f = *q.Features
	}
	least, most := k.classifier.groupsOf(was, unknown)
	f.recorded = &recorded{groups: least, userBytes: was.UserBytes}
	if was.Counted > 0 {
		f.Count = func() (int64, bool) { return was.Counted, true }
	}
	q.Features = &f
	// Whether the tier depends on what is not known is asked first: the verdict
	// itself is what the chat remembers.
	known = true
	if len(most) > len(least) {
		known = k.sameTargetWith(q, most)
	}
	v, err = k.Resolve(q)
	return v, known, err
}

// settled tells whether the request goes to the same target whether the groups
// beyond those that it is known to match do match or not.
func (k *Catalog) sameTargetWith(q Query, most []string) bool {
	more := *q.Features
	more.recorded = &recorded{groups: most, userBytes: q.Features.recorded.userBytes}
	q.Chats = q.Chats.ReadOnly()
	low, lowErr := k.Resolve(q)
	q.Features = &more
	high, highErr := k.Resolve(q)
	return low.Target == high.Target && (lowErr == nil) == (highErr == nil)
}

// groupsOf returns the groups that a recorded request matches, and those that it
// matches if it matches all that is not known.
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

// NewGroups returns the names of the keyword groups of which a record that was made
// under another classifier does not tell whether they match: those that it does not
// have, or that look for something else or elsewhere there. Tier and weight of a
// group play no part.
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

// patterns returns the expressions of a group, sorted: their order decides nothing.
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

// recorded stands for the texts of a request that are not there any more.
type recorded struct {
	groups    []string
	userBytes int
}

// recall takes the groups for matched that matched then.
func (s *search) restoreGroups(r *recorded) {
	for i := range s.m.groups {
		s.matched[i] = slices.Contains(r.groups, s.m.groups[i].name)
	}
	s.userBytes = r.userBytes
}
