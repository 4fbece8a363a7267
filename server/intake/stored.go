package intake

import (
	"fmt"

	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
)

// Remember keeps which worker holds a response.
func (it *Intake) Remember(r StoredResponse) { it.stored.Put(r) }

// Forget drops a response that its owner deleted.
func (it *Intake) Forget(id string) { it.stored.Forget(id) }

// StoredCount returns of how many responses the worker is known.
func (it *Intake) StoredCount() int { return it.stored.Count() }

// Locate finds the worker that holds a stored response, and its pool. foreign
// reports a response that the caller may not reach. Otherwise a nil member means
// that the worker is not known: the response was made before the gateway started,
// through another gateway, or by a worker that has left the configuration.
func (it *Intake) Locate(in *Inbound, c *Caller, id string) (p *control.Pool, m *control.Member, foreign bool) {
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

// owns reports whether a stored answer is the caller's: its tenant's alone, and
// within the rights of its key.
func owns(snap *control.Snapshot, c *tenants.Caller, at StoredResponse) bool {
	return !at.contested && at.Tenant == c.Tenant && snap.MayUse(c, at.Pool) && c.MayUseModel(at.Model)
}

// refuseKept refuses a path under which the pool's engines keep objects of several
// tenants.
func refuseKept(in *Inbound, p *control.Pool) error {
	kind := openai.KeptKind(in.HTTP.Method, in.HTTP.URL.Path)
	if kind == "" || in.Snap.Private(p) {
		return nil
	}
	return &openai.Error{Code: openai.CodeUnknownURL, Message: in.unknownURLMessage(),
		Cause: fmt.Errorf("engines keep %s without tenants: set tenant of the pool %s to the one that may use them", kind, p.Name)}
}
