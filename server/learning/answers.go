package learning

import (
	"container/list"
	"sync"
	"time"
)

const (
	// maxAnswers bounds the remembered answers: ten minutes at 16 classified requests/s, in some 3 MB.
	maxAnswers = 10_000
	// escalationTime is how long after an answer the same prompt at a higher tier is an escalation.
	escalationTime = 10 * time.Minute
)

// Answer is which tier answered a request.
type Answer struct {
	ID     string // of the request
	Tenant string
	Tier   string
	At     time.Time
}

// answers remembers which tier answered a prompt, by the prompt's hash alone. It has at most limit answers; a further
// one replaces the oldest. It is safe for concurrent use.
type answers struct {
	limit int

	mu       sync.Mutex               // guards all below
	byPrompt map[uint64]*list.Element // in uses, by prompt
	uses     list.List                // of *answered, the newest first
}

// answered is the last answer to a prompt.
type answered struct {
	prompt uint64
	Answer
}

func newAnswers(limit int) *answers {
	return &answers{limit: limit, byPrompt: map[uint64]*list.Element{}}
}

func (a *answers) remember(prompt uint64, last Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.byPrompt[prompt]
	switch {
	case at == nil && a.uses.Len() < a.limit:
		at = a.uses.PushFront(&answered{})
	case at == nil:
		at = a.uses.Back()
		delete(a.byPrompt, at.Value.(*answered).prompt)
	}
	*at.Value.(*answered) = answered{prompt, last}
	a.byPrompt[prompt] = at
	a.uses.MoveToFront(at)
}

// removeIfLower removes and returns the last answer to a prompt if it is at most escalationTime old, and from a lower
// tier.
func (a *answers) removeIfLower(prompt uint64, now time.Time, lower func(tier string) bool) (Answer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.byPrompt[prompt]
	if at == nil {
		return Answer{}, false
	}
	last := at.Value.(*answered).Answer
	if now.Sub(last.At) > escalationTime || !lower(last.Tier) {
		return Answer{}, false
	}
	delete(a.byPrompt, prompt)
	a.uses.Remove(at)
	return last, true
}
