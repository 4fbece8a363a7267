package control

import (
	"fmt"
	"log/slog"
	"sync"

	"tierway/openai/tokens"
)

// Vocabularies holds the loaded tokenizer vocabularies. Requests do not wait for a vocabulary: until it
// is loaded, their tokens are estimated. It is safe for concurrent use.
type Vocabularies struct {
	log     *slog.Logger
	recover *Recoverer
	due     chan string // the name of a vocabulary that may be missing

	loading sync.Mutex // held during a load, so that each vocabulary is loaded once
	mu      sync.Mutex
	byName  map[string]*tokens.Vocabulary
}

// Get returns a vocabulary, or nil if it is not loaded.
func (v *Vocabularies) Get(name string) *tokens.Vocabulary {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byName[name]
}

// request makes run load a vocabulary unless it is loaded, in place of one that still waits. It does not block. Calls
// must not overlap.
func (v *Vocabularies) request(name string) {
	select {
	case <-v.due:
	default:
	}
	v.due <- name
}

// run loads the requested vocabularies until done is closed.
func (v *Vocabularies) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case name := <-v.due:
			err := v.recover.Try("loading a vocabulary", func() error { return v.Load(name) })
			if err != nil {
				v.log.Error("loading a vocabulary failed; prompt lengths near a threshold are estimated", "cause", err.Error())
			}
		}
	}
}

// Load loads a vocabulary unless it is loaded or its name is "". It takes about 300 ms.
func (v *Vocabularies) Load(name string) error {
	if name == "" || v.Get(name) != nil {
		return nil
	}
	v.loading.Lock()
	defer v.loading.Unlock()
	if v.Get(name) != nil {
		return nil
	}
	loaded, err := tokens.Load(name)
	if err != nil {
		return fmt.Errorf("loading the vocabulary %s: %w", name, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byName == nil {
		v.byName = map[string]*tokens.Vocabulary{}
	}
	v.byName[name] = loaded
	return nil
}
