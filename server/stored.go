package server

import (
	"container/list"
	"sync"
)

// storedAnswersMax bounds the directory of stored responses; at some 300 bytes
// an entry it stays under 32 MiB.
const storedAnswersMax = 100_000

// storedAnswer says where a stored response lies and whose it is.
type storedAnswer struct {
	id     string
	tenant string
	pool   string
	model  string // by which it was asked for
	member *member
}

// storedAnswers remembers which worker made which response of
// POST /v1/responses, the latest storedAnswersMax of them.
type storedAnswers struct {
	max int

	mu    sync.Mutex
	order *list.List // of storedAnswer, the newest in front
	byID  map[string]*list.Element
}

func newStoredAnswers(limit int) *storedAnswers {
	return &storedAnswers{max: limit, order: list.New(), byID: map[string]*list.Element{}}
}

// put remembers an answer and forgets the oldest when there are too many. An
// id that is already known keeps its tenant: a worker that repeats another
// tenant's id cannot hand it over. For its own tenant the newest answer counts.
func (a *storedAnswers) put(s storedAnswer) {
	if s.id == "" || len(s.id) > 256 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[s.id]; e != nil {
		if e.Value.(storedAnswer).tenant == s.tenant {
			e.Value = s
			a.order.MoveToFront(e)
		}
		return
	}
	a.byID[s.id] = a.order.PushFront(s)
	if a.order.Len() > a.max {
		old := a.order.Remove(a.order.Back()).(storedAnswer)
		delete(a.byID, old.id)
	}
}

// get returns the answer of that id.
func (a *storedAnswers) get(id string) (storedAnswer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[id]; e != nil {
		return e.Value.(storedAnswer), true
	}
	return storedAnswer{}, false
}

// forget drops an answer that its owner deleted.
func (a *storedAnswers) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[id]; e != nil {
		a.order.Remove(e)
		delete(a.byID, id)
	}
}
