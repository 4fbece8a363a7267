package prompttokens

import (
	"slices"
	"testing"

	"tierway/openai"
)

// TestLookupOfTokensHasThoseOfTheEngine: of the whole prompt, or of the beginning that earlier requests had.
func TestLookupOfTokensHasThoseOfTheEngine(t *testing.T) {
	w := client(t, engine(t, 1<<20))
	s := source(w)
	first := []object{say("system", long(1, 300)), say("user", "question")}
	q := query(t, openai.Chat, object{"model": "m", "messages": first})
	if got := s.LookupTokens(t.Context(), q, false, nil); len(got.IDs) > 0 || got.Whole || got.Repeated > 0 {
		t.Errorf("nothing is known, and got %d tokens, %d repeated", len(got.IDs), got.Repeated)
	}
	lookup(t, s, q)
	whole := tokenize(t, w.Poster, q)
	buffer := make([]uint32, 0, 8)
	for range 2 {
		got := s.LookupTokens(t.Context(), q, false, buffer)
		if !got.Whole || !slices.Equal(got.IDs, whole) || got.Repeated != len(whole) {
			t.Errorf("%d tokens, want %d; %d repeated", len(got.IDs), len(whole), got.Repeated)
		}
		buffer = got.IDs[:0]
	}
	next := query(t, openai.Chat, object{"model": "m", "messages": append(first, say("assistant", "answer"),
		say("user", "another"))})
	got := s.LookupTokens(t.Context(), next, false, nil)
	if all := tokenize(t, w.Poster, next); got.Whole || len(got.IDs) < 300 || commonPrefix(got.IDs, all) < len(got.IDs) ||
		got.Repeated != len(got.IDs) {
		t.Errorf("%d tokens of %d, %d repeated", len(got.IDs), len(all), got.Repeated)
	}
	if n := s.Counts(); n.Known+n.Beginning != 0 {
		t.Errorf("counted: %+v", n)
	}
	ids := query(t, openai.Completions, object{"model": "m", "prompt": []int{7, 70000, 1<<32 - 1}})
	if got := s.LookupTokens(t.Context(), ids, true, nil); !got.Whole ||
		!slices.Equal(got.IDs, []uint32{7, 70000, 1<<32 - 1}) || got.Repeated != 0 {
		t.Errorf("of a list: %+v", got)
	}
	if n := s.Counts(); n.Known != 1 {
		t.Errorf("counted: %+v", n)
	}
	for _, body := range []object{{"model": "m", "prompt": []int{-1}}, {"model": "m", "prompt": []int{1 << 40}}} {
		if got := s.LookupTokens(t.Context(), query(t, openai.Completions, body), true, nil); len(got.IDs) > 0 || got.Whole {
			t.Errorf("%v: %+v", body, got)
		}
	}
}
