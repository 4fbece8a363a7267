package intake

import (
	"container/list"
	"sync"

	"tierway/store"
)

// maxStoredResponses is the largest number of stored responses that are remembered: at about 300 bytes
// each, less than 32 MiB.
const maxStoredResponses = 100_000

// storedResponses maps the responses and conversations that this gateway has relayed to their workers, for
// at most max of them. An entry is Foreign if a worker returned its id to two tenants: it is unknown which of
// the two objects the worker keeps.
type storedResponses struct {
	max int

	mu       sync.Mutex
	byTenant map[string]*list.List // of store.StoredResponse, the newest in front; none is empty
	byID     map[string]*list.Element
}

// newStoredResponses returns an empty directory of at most limit responses.
func newStoredResponses(limit int) *storedResponses {
	return &storedResponses{max: limit, byTenant: map[string]*list.List{}, byID: map[string]*list.Element{}}
}

// Put adds a response, and removes another one if there are too many. A response of the same tenant with
// the same id is replaced. If another tenant has the id, neither may access the entry. Put returns the entry.
func (a *storedResponses) Put(s store.StoredResponse) store.StoredResponse {
	if !s.Valid() {
		return s
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[s.ID]; e != nil {
		known := e.Value.(store.StoredResponse)
		s.Foreign = s.Foreign || known.Foreign || known.Tenant != s.Tenant
		s.Tenant = known.Tenant
		e.Value = s
		a.byTenant[s.Tenant].MoveToFront(e)
		return s
	}
	own := a.byTenant[s.Tenant]
	if own == nil {
		own = list.New()
		a.byTenant[s.Tenant] = own
	}
	a.byID[s.ID] = own.PushFront(s)
	if len(a.byID) > a.max {
		a.evictLocked(own)
	}
	return s
}

// evictLocked removes the oldest response of the tenant that has just added one. If that tenant has at
// most an equal share, it removes the oldest response of the tenant with the most. Thus no tenant can
// displace another tenant's responses by creating many.
func (a *storedResponses) evictLocked(from *list.List) {
	if from.Len()*len(a.byTenant) <= a.max {
		for _, l := range a.byTenant {
			if l.Len() > from.Len() {
				from = l
			}
		}
	}
	a.removeLocked(from.Back())
}

func (a *storedResponses) removeLocked(e *list.Element) {
	s := e.Value.(store.StoredResponse)
	delete(a.byID, s.ID)
	own := a.byTenant[s.Tenant]
	if own.Remove(e); own.Len() == 0 {
		delete(a.byTenant, s.Tenant)
	}
}

// Count returns the number of responses.
func (a *storedResponses) Count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byID)
}

// Known returns all entries, the oldest of each tenant first.
func (a *storedResponses) Known() (all []store.StoredResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all = make([]store.StoredResponse, 0, len(a.byID))
	for _, own := range a.byTenant {
		for e := own.Back(); e != nil; e = e.Prev() {
			all = append(all, e.Value.(store.StoredResponse))
		}
	}
	return all
}

// Get returns the response with that id.
func (a *storedResponses) Get(id string) (store.StoredResponse, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[id]; e != nil {
		return e.Value.(store.StoredResponse), true
	}
	return store.StoredResponse{}, false
}

// Forget removes a response that its owner deleted.
func (a *storedResponses) Forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[id]; e != nil {
		a.removeLocked(e)
	}
}
