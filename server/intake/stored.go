package intake

import (
	"fmt"
	"slices"
	"time"

	"tierway/openai"
	"tierway/server/control"
	"tierway/store"
	"tierway/tenants"
)

// RememberResponse stores which worker has a response or conversation, in this gateway and in Redis. It must
// be called before the client knows the id, because a follow-up may reach another gateway at once. It waits
// for Redis no longer than the timeout.
func (it *Intake) RememberResponse(in *Inbound, s store.StoredResponse) {
	s = it.stored.Put(s)
	if shared := it.control.Stores.Responses; shared != nil && shared.Put(in.HTTP.Context(), s) && !s.Foreign {
		s.Foreign = true
		it.stored.Put(s)
	}
}

// ForgetResponse removes a response or conversation that its owner deleted.
func (it *Intake) ForgetResponse(in *Inbound, c *Caller, id string) {
	if shared := it.control.Stores.Responses; shared != nil {
		shared.Forget(in.HTTP.Context(), c.Tenant, id)
	}
	it.stored.Forget(id)
}

// lookUpResponse returns what is known about a response or conversation for a tenant. If Redis knows it, its
// entry applies: another gateway may have deleted it, or another tenant may have its id. Otherwise this
// gateway's own entry applies, and always if it says that two tenants have the id. An error means that Redis may know
// an id that this gateway does not know. A request looks up the same id in Redis once.
func (it *Intake) lookUpResponse(in *Inbound, tenant, id string) (s store.StoredResponse, known bool, err error) {
	if in.lookedUp.ID == id {
		return in.lookedUp, in.known, in.lookUpErr
	}
	s, known = it.stored.Get(id)
	if shared := it.control.Stores.Responses; shared != nil && !s.Foreign {
		found, ok, failed := shared.Get(in.HTTP.Context(), tenant, id)
		switch {
		case ok:
			s, known = found, true
		case !known:
			err = failed
		}
	}
	s.ID, s.Foreign = id, s.Foreign || known && s.Tenant != tenant
	in.lookedUp, in.known, in.lookUpErr = s, known, err
	return s, known, err
}

// StoredCount returns the number of responses with a known worker.
func (it *Intake) StoredCount() int { return it.stored.Count() }

// LocateResponse finds the worker that has a stored response or conversation, and its pool. foreign reports
// that the caller may not access it. Otherwise a nil member means that the worker is unknown: neither Redis
// nor this gateway knows the id, or the worker is no longer configured, or another fleet's worker has its name. The
// only error is for the client: openai.CodeStoredUnavailable, because Redis did not answer and this gateway does not
// know the id.
func (it *Intake) LocateResponse(in *Inbound, c *Caller, id string) (p *control.Pool, m *control.Member, foreign bool,
	err error) {
	at, known, err := it.lookUpResponse(in, c.Tenant, id)
	if err != nil {
		return nil, nil, false, storedUnavailable(id, err)
	}
	if !known {
		return nil, nil, false, nil
	}
	if !owns(in.Snap, c.Caller, at) {
		return nil, nil, true, nil
	}
	if p = in.Snap.ByName[at.Pool]; p != nil && p.HasServer(at.Worker, at.Server) {
		m = p.Members[at.Worker]
	}
	return p, m, false, nil
}

// storedUnavailable returns the answer to a request about an id that Redis could not look up.
func storedUnavailable(id string, cause error) error {
	return &openai.Error{Code: openai.CodeStoredUnavailable, RetryAfter: time.Second, Cause: cause,
		Message: "The worker of the stored response or conversation " + openai.Quoted(id) +
			" cannot be looked up because Redis is unavailable. Retry after Retry-After."}
}

// IsOnlyHolder reports whether the only worker of p is the only one that may have a stored response, or a conversation,
// of the caller. A request about one that Redis could not look up may then be sent to p.
func IsOnlyHolder(snap *control.Snapshot, c *tenants.Caller, p *control.Pool, conversation bool) bool {
	if !snap.Private(p) || len(p.Members) != 1 {
		return false
	}
	return !slices.ContainsFunc(snap.Pools, func(other *control.Pool) bool {
		return other != p && snap.MayUse(c, other.Name) && mayHold(snap, other, conversation)
	})
}

// mayHold reports whether requests create stored responses, or conversations, at the workers of a pool. Conversations
// are created on paths that pass through a private pool.
func mayHold(snap *control.Snapshot, p *control.Pool, conversation bool) bool {
	passing := len(p.Paths) > 0
	if conversation {
		return passing && snap.Private(p)
	}
	return passing || p.Served[openai.Responses]
}

// owns reports whether the caller may access a stored response: it belongs to the caller's tenant
// alone, and the permissions of the key cover it.
func owns(snap *control.Snapshot, c *tenants.Caller, at store.StoredResponse) bool {
	return !at.Foreign && at.Tenant == c.Tenant && snap.MayUse(c, at.Pool) && (at.Model == "" || c.MayUseModel(at.Model))
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
