package control

import (
	"sync"
	"testing"

	"tierway/openai/tokens"
)

// TestConcurrentLoadsLoadAVocabularyOnce.
func TestConcurrentLoadsLoadAVocabularyOnce(t *testing.T) {
	v := new(Vocabularies)
	var got [3]*tokens.Vocabulary
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			if err := v.Load(tokens.Cl100kBase); err != nil {
				t.Error(err)
			}
			got[i] = v.Get(tokens.Cl100kBase)
		})
	}
	all.Wait()
	if got[0] == nil || got[1] != got[0] || got[2] != got[0] {
		t.Errorf("%p, %p and %p were loaded", got[0], got[1], got[2])
	}
}
