package intake

import (
	"container/list"
	"sync"
)

// maxStoredResponses is the largest number of stored responses that are remembered: at about 300 bytes
// each, less than 32 MiB.
const maxStoredResponses = 100_000

// StoredResponse is a response that an engine stores: its tenant, and the worker that has it. Worker is a
// name, because a reload may replace the worker.
type StoredResponse struct {
	ID     string
	Tenant string
	Pool   string
	Worker string
	Model  string // as the client requested it
	// contested is set if a worker returned the same id to two tenants. It is unknown which of the two
	// responses the worker keeps, so neither tenant may access it.
	contested bool
}

// storedResponses maps responses of POST /v1/responses to their workers, for at most max responses.
type storedResponses struct {
	max int

	mu       sync.Mutex
	byTenant map[string]*list.List // of StoredResponse, the newest in front; none is empty
	byID     map[string]*list.Element
}

// newStoredResponses returns an empty directory of at most limit responses.
func newStoredResponses(limit int) *storedResponses {
	return &storedResponses{max: limit, byTenant: map[string]*list.List{}, byID: map[string]*list.Element{}}
}

// Put adds a response, and removes another one if there are too many. A response of the same tenant with
// the same id is replaced. If another tenant has the id, the entry becomes contested.
func (a *storedResponses) Put(s StoredResponse) {
	if s.ID == "" || len(s.ID) > 256 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[s.ID]; e != nil {
		known := e.Value.(StoredResponse)
		s.contested = known.contested || known.Tenant != s.Tenant
		s.Tenant = known.Tenant
		e.Value = s
		a.byTenant[s.Tenant].MoveToFront(e)
		return
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

// removeLocked removes an entry.
func (a *storedResponses) removeLocked(e *list.Element) {
	s := e.Value.(StoredResponse)
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

// Get returns the response with that id.
func (a *storedResponses) Get(id string) (StoredResponse, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[id]; e != nil {
		return e.Value.(StoredResponse), true
	}
	return StoredResponse{}, false
}

// Forget removes a response that its owner deleted.
func (a *storedResponses) Forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byID[id]; e != nil {
		a.removeLocked(e)
	}
}
