package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"tierway/decisions"
	"tierway/openai"
	"tierway/server/control"
)

// remember notes which worker holds the response that the request has made.
func (a *attempt) remember(id string) {
	x := a.x
	if x.parsed.stores() {
		x.s.stored.Put(control.StoredResponse{Id: id, Tenant: x.caller.Tenant, Pool: x.resolution.pool.Name, Worker: a.m.Name, Model: x.parsed.req.Model})
	}
}

// locateStored finds the worker that holds a stored response, and its pool. foreign
// reports a response that the caller may not reach. Otherwise a nil member means
// that the worker is not known: the response was made before the gateway started,
// through another gateway, or by a worker that has left the configuration.
func locateStored(x *exchange, id string) (p *control.Pool, m *control.Member, foreign bool) {
	at, known := x.s.stored.Get(id)
	if !known {
		return nil, nil, false
	}
	if !owns(x.snap, x.caller.Caller, at) {
		return nil, nil, true
	}
	if p = x.snap.ByName[at.Pool]; p != nil {
		m = p.Members[at.Worker]
	}
	return p, m, false
}

// serveStored serves a route about a stored response by the worker that holds it.
func serveStored(x *exchange) error {
	if err := x.authenticate(); err != nil {
		return err
	}
	x.caller.inLedger = true
	if err := checkHeaders(x.in.r.Header); err != nil {
		return err
	}
	p, m, foreign := locateStored(x, x.in.id)
	switch {
	case m != nil:
		x.in.workerPath = "/v1" + strings.Replace(x.in.pattern, ":id", url.PathEscape(x.in.id), 1)
		return askHolder(x, x.in.id, p, m, func(body []byte) (*openai.Request, error) {
			r, err := passedRequest(x, body) // no API gives it a body
			if err == nil {
				r.Stream = x.in.r.URL.Query().Get("stream") == "true"
			}
			return r, err
		})
	case !foreign && passingPool(x.snap, x.in.r.URL.Path, x.caller.Caller) != nil:
		return passUnrouted(x)
	}
	return responseNotFound(x.in.id)
}

// passUnrouted serves a request of a route as one without a route.
func passUnrouted(x *exchange) error {
	x.in.dialect = openai.Other
	return passThrough(x, 0)
}

// passStored serves a request about a response on a path that passes through a
// pool. done reports that it is served, or refused with err.
func passStored(x *exchange) (done bool, err error) {
	id, below, ok := openai.ResponsePath(x.in.r.URL.Path)
	if !ok || id == "" {
		return false, nil
	}
	p, m, foreign := locateStored(x, id)
	action := x.in.r.Method == http.MethodPost && below == "" // such as compact: no API has a POST of a response itself
	switch {
	case m != nil:
		x.in.workerPath = x.in.r.URL.EscapedPath()
		return true, askHolder(x, id, p, m, func(body []byte) (*openai.Request, error) { return passedRequest(x, body) })
	case foreign, !action && !x.snap.Private(x.resolution.pool):
		return true, responseNotFound(id)
	}
	return false, nil
}

// askHolder sends a request about a stored response to the worker that holds it.
// read makes the request of its body.
func askHolder(x *exchange, id string, p *control.Pool, m *control.Member, read func([]byte) (*openai.Request, error)) error {
	x.resolution.pool = p
	body, err := readBody(x)
	if err != nil {
		return err
	}
	if x.parsed.req, err = read(body); err != nil {
		return err
	}
	x.parsed.class, x.parsed.askedClass = x.in.class(x.caller.Caller, x.parsed.req.ServiceTier)
	x.resolution.Rule, x.resolution.stored = decisions.RuleStored, true
	if err := x.admission.charge(x.admission.take); err != nil {
		return err
	}
	x.gather()
	if err := pinToStored(x); err != nil {
		return err
	}
	err = x.dispatch.forwardTo(m)
	_, below, _ := openai.ResponsePath(x.in.r.URL.Path)
	if err == nil && x.in.r.Method == http.MethodDelete && below == "" && x.answer.status == http.StatusOK {
		x.s.stored.Forget(id)
	}
	return err
}

// pinToStored sends a follow-up of a stored response to the worker that holds
// it. A response or conversation that may be another tenant's does not exist.
func pinToStored(x *exchange) error {
	if id := x.parsed.req.PreviousResponseID; id != "" {
		p, m, foreign := locateStored(x, id)
		switch {
		case foreign, m == nil && !x.snap.Private(x.resolution.pool):
			return previousNotFound(id)
		case m != nil && p == x.resolution.pool:
			x.facts.Only = m // others may come while it waits for this one
		}
	}
	if id := x.parsed.req.ConversationID; id != "" && !x.snap.Private(x.resolution.pool) {
		return conversationNotFound(id)
	}
	return nil
}

// refuseKept refuses a path under which the pool's engines keep objects of several
// tenants.
func refuseKept(x *exchange) error {
	kind := openai.KeptKind(x.in.r.Method, x.in.r.URL.Path)
	if kind == "" || x.snap.Private(x.resolution.pool) {
		return nil
	}
	return &openai.Error{Code: openai.CodeUnknownURL, Message: unknownURL(x.in.r),
		Cause: fmt.Errorf("engines keep %s without tenants: set tenant of the pool %s to the one that may use them", kind, x.resolution.pool.Name)}
}
