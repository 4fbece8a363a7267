package intake

import (
	"fmt"

	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
)

// RememberResponse stores which worker has a response.
func (it *Intake) RememberResponse(r StoredResponse) { it.stored.Put(r) }

// ForgetResponse removes a response that its owner deleted.
func (it *Intake) ForgetResponse(id string) { it.stored.Forget(id) }

// StoredCount returns the number of responses with a known worker.
func (it *Intake) StoredCount() int { return it.stored.Count() }

// LocateResponse finds the worker that has a stored response, and its pool. foreign reports that the caller may
// not access the response. Otherwise a nil member means that the worker is unknown: the response was
// created before the gateway started, through another gateway, or by a worker that is no longer
// configured.
func (it *Intake) LocateResponse(in *Inbound, c *Caller, id string) (p *control.Pool, m *control.Member, foreign bool) {
	at, known := it.stored.Get(id)
	if !known {
		return nil, nil, false
	}
	if !owns(in.Snap, c.Caller, at) {
		return nil, nil, true
	}
	if p = in.Snap.ByName[at.Pool]; p != nil {
		m = p.Members[at.Worker]
	}
	return p, m, false
}

// owns reports whether the caller may access a stored response: it belongs to the caller's tenant
// alone, and the permissions of the key cover it.
func owns(snap *control.Snapshot, c *tenants.Caller, at StoredResponse) bool {
	return !at.contested && at.Tenant == c.Tenant && snap.MayUse(c, at.Pool) && c.MayUseModel(at.Model)
}

// refuseKeptObjects returns an error for a path under which the pool's engines store objects without
// separating tenants.
func refuseKeptObjects(in *Inbound, p *control.Pool) error {
	kind := openai.StoredKind(in.HTTP.Method, in.HTTP.URL.Path)
	if kind == "" || in.Snap.Private(p) {
		return nil
	}
	return &openai.Error{Code: openai.CodeUnknownURL, Message: in.unknownURLMessage(),
		Cause: fmt.Errorf("engines keep %s without tenants: set tenant of the pool %s to the one that may use them", kind,
			p.Name)}
}
