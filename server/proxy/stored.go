package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"tierway/decisions"
	"tierway/openai"
	"tierway/server/control"
	"tierway/server/intake"
)

// remember notes which worker holds the response that the request has made.
func (a *attempt) rememberResponse(id string) {
	x := a.x
	if x.parsed.Stores() {
		x.s.intake.Remember(intake.StoredResponse{
			ID:     id,
			Tenant: x.caller.Tenant,
			Pool:   x.resolution.Pool.Name,
			Worker: a.m.Name,
			Model:  x.parsed.Req.Model,
		})
	}
}

// serveStored serves a route about a stored response by the worker that holds it.
func serveStored(x *exchange) error {
	if err := x.in.CheckHeaders(); err != nil {
		return err
	}
	p, m, foreign := x.s.intake.Locate(&x.in, &x.caller, x.in.PathID)
	switch {
	case m != nil:
		x.in.WorkerPath = "/v1" + strings.Replace(x.in.Pattern, ":id", url.PathEscape(x.in.PathID), 1)
		return forwardToHolder(x, x.in.PathID, p, m)
	case !foreign && intake.PassingPool(&x.in, &x.caller) != nil:
		return passUnrouted(x)
	}
	return responseNotFound(x.in.PathID)
}

// passStored serves a request about a response on a path that passes through a
// pool. done reports that it is served, or refused with err.
func passStored(x *exchange) (done bool, err error) {
	id, below, ok := openai.ResponsePath(x.in.HTTP.URL.Path)
	if !ok || id == "" {
		return false, nil
	}
	p, m, foreign := x.s.intake.Locate(&x.in, &x.caller, id)
	action := x.in.HTTP.Method == http.MethodPost && below == "" // such as compact: no API has a POST of a response itself
	switch {
	case m != nil:
		x.in.WorkerPath = x.in.HTTP.URL.EscapedPath()
		return true, forwardToHolder(x, id, p, m)
	case foreign, !action && !x.in.Snap.Private(x.resolution.Pool):
		return true, responseNotFound(id)
	}
	return false, nil
}

// forwardToHolder sends a request about a stored response to the worker that holds it.
func forwardToHolder(x *exchange, id string, p *control.Pool, m *control.Member) (err error) {
	x.resolution.Pool = p
	if x.parsed, err = x.s.intake.ReadUntouched(&x.in, &x.caller, p); err != nil {
		return err
	}
	if x.in.Kind == intake.Stored { // which has no body that could ask for a stream
		x.parsed.Req.Stream = x.in.HTTP.URL.Query().Get("stream") == "true"
	}
	x.resolution.Rule, x.resolution.Stored = decisions.RuleStored, true
	if err := x.charge(x.s.control.Stores.Limits); err != nil {
		return err
	}
	x.gather()
	if err := pinToStored(x); err != nil {
		return err
	}
	err = forwardTo(x, m)
	_, below, _ := openai.ResponsePath(x.in.HTTP.URL.Path)
	if err == nil && x.in.HTTP.Method == http.MethodDelete && below == "" && x.answer.status == http.StatusOK {
		x.s.intake.Forget(id)
	}
	return err
}

// pinToStored sends a follow-up of a stored response to the worker that holds
// it. A response or conversation that may be another tenant's does not exist.
func pinToStored(x *exchange) error {
	if id := x.parsed.Req.PreviousResponseID; id != "" {
		p, m, foreign := x.s.intake.Locate(&x.in, &x.caller, id)
		switch {
		case foreign, m == nil && !x.in.Snap.Private(x.resolution.Pool):
			return previousNotFound(id)
		case m != nil && p == x.resolution.Pool:
			x.facts.Only = m // others may come while it waits for this one
		}
	}
	if id := x.parsed.Req.ConversationID; id != "" && !x.in.Snap.Private(x.resolution.Pool) {
		return conversationNotFound(id)
	}
	return nil
}
