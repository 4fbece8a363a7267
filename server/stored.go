package server

import (
	"container/list"
	"net/http"
	"net/url"
	"sync"

	"tierway/openai"
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

// owns tells whether a stored answer is the caller's: its tenant's, and within the
// rights of its key.
func (x *exchange) owns(at storedAnswer) bool {
	return at.tenant == x.caller.Tenant && x.caller.MayUseTier(at.pool) && x.caller.MayUseModel(at.model)
}

// ruleStored is the rule of requests about a stored response.
const ruleStored = "stored"

// storedAnswer sends a request about a stored response to the worker that made
// it. Another tenant's response does not exist.
func (x *exchange) storedAnswer() error {
	if err := x.authenticate(); err != nil {
		return err
	}
	x.inLedger = true
	at, known := x.s.stored.get(x.id)
	if !known {
		if x.snap.passing(x.r.URL.Path, x.caller) != nil {
			return x.passThrough(0)
		}
		return responseNotFound(x.id)
	}
	x.pool = x.snap.byName[at.pool]
	if x.pool == nil || !x.owns(at) {
		return responseNotFound(x.id)
	}
	body, err := x.readBody()
	if err != nil {
		return err
	}
	x.req = &openai.Request{Dialect: openai.Responses, Body: body, Stream: x.r.URL.Query().Get("stream") == "true"}
	x.workerPath = "/v1/responses/" + url.PathEscape(x.id)
	if x.r.Method == http.MethodPost {
		x.workerPath += "/cancel"
	}
	x.class = x.priority()
	x.d.Class, x.d.Tier, x.d.Rule = x.class.String(), x.pool.Name, ruleStored
	if err := x.charge(); err != nil {
		return err
	}
	x.gather()
	err = x.forwardTo(at.member)
	if err == nil && x.r.Method == http.MethodDelete && x.answer.status == http.StatusOK {
		x.s.stored.forget(x.id)
	}
	return err
}
