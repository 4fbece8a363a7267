package admin

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPagesCoverTheWholeListOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfDistinct(rapid.StringMatching(`[a-z]{1,4}`), func(s string) string { return s }).Draw(t, "all")
		q := PageQuery{Limit: rapid.IntRange(1, 7).Draw(t, "limit")}
		self := func(s *string) string { return *s }
		seen := map[string]int{}
		for range len(all) + 1 {
			p := paged(append([]string(nil), all...), q, self, self)
			if p.Total != len(all) || len(p.Items) > q.Limit {
				t.Fatalf("%+v", p)
			}
			for _, item := range p.Items {
				seen[item]++
			}
			if p.Next == nil {
				break
			}
			q.Cursor = *p.Next
		}
		for _, item := range all {
			if seen[item] != 1 {
				t.Fatalf("%q is on %d pages", item, seen[item])
			}
		}
	})
}
