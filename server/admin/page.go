package admin

import (
	"cmp"
	"slices"
	"strings"
)

// PageQuery chooses a part of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"At most so many items."`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before."`
	Search string `query:"q" maxLength:"100" doc:"Only items whose name has this text."`
}

type page[T any] struct {
	Items []T     `json:"items" nullable:"false"`
	Next  *string `json:"next_cursor" doc:"Ask for the next page with ?cursor; null: this is the last."`
	Total int     `json:"total" doc:"Items on all pages."`
}

// whole returns a list that is one page.
func whole[T any](all []T) *reply[page[T]] {
	return &reply[page[T]]{Body: page[T]{Items: all, Total: len(all)}}
}

// mapped returns f of each item; never nil.
func mapped[T, V any](all []T, f func(T) V) []V {
	out := make([]V, len(all))
	for i := range all {
		out[i] = f(all[i])
	}
	return out
}

// paged returns the part of all that q asks for, in the order of their ids. A
// cursor is the id of the last item that was seen, so that items which come and
// go between two pages neither repeat nor hide others.
func paged[T any](all []T, q PageQuery, id, name func(*T) string) page[T] {
	all = slices.DeleteFunc(all, func(item T) bool { return !strings.Contains(name(&item), q.Search) })
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(id(&a), id(&b)) })
	p := page[T]{Items: []T{}, Total: len(all)}
	from := 0
	if q.Cursor != "" {
		from, _ = slices.BinarySearchFunc(all, q.Cursor, func(item T, cursor string) int {
			if id(&item) <= cursor {
				return -1
			}
			return 1
		})
	}
	to := min(from+q.Limit, len(all))
	p.Items = append(p.Items, all[from:to]...)
	if to < len(all) {
		p.Next = new(id(&all[to-1]))
	}
	return p
}
