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

// rememberResponse stores which worker has the response, if the engine stores it.
func (a *attempt) rememberResponse(id string) {
	x := a.x
	if x.parsed.Stores() {
		x.s.intake.RememberResponse(intake.StoredResponse{
			ID:     id,
			Tenant: x.caller.Tenant,
			Pool:   x.resolution.Pool.Name,
			Worker: a.m.Name,
			Model:  x.parsed.Req.Model,
		})
	}
}

// serveStored serves a route about a stored response at the worker that has it.
func serveStored(x *exchange) error {
	if err := x.in.CheckHeaders(); err != nil {
		return err
	}
	p, m, foreign := x.s.intake.LocateResponse(&x.in, &x.caller, x.in.PathID)
	switch {
	case m != nil:
		x.in.WorkerPath = "/v1" + strings.Replace(x.in.Pattern, ":id", url.PathEscape(x.in.PathID), 1)
		return forwardToHolder(x, x.in.PathID, p, m)
	case !foreign && intake.PassingPool(&x.in, &x.caller) != nil:
		return passUnrouted(x)
	}
	return responseNotFound(x.in.PathID)
}

// passStored serves a request about a stored response on a path that passes through a pool. done reports
// that the request is served, or refused with err.
func passStored(x *exchange) (done bool, err error) {
	id, below, ok := openai.ResponsePath(x.in.HTTP.URL.Path)
	if !ok || id == "" {
		return false, nil
	}
	p, m, foreign := x.s.intake.LocateResponse(&x.in, &x.caller, id)
	// A POST to /responses/compact is an action: no API has a POST to a response itself.
	action := x.in.HTTP.Method == http.MethodPost && below == ""
	switch {
	case m != nil:
		x.in.WorkerPath = x.in.HTTP.URL.EscapedPath()
		return true, forwardToHolder(x, id, p, m)
	case foreign, !action && !x.in.Snap.Private(x.resolution.Pool):
		return true, responseNotFound(id)
	}
	return false, nil
}

// forwardToHolder sends a request about a stored response to the worker that has it.
func forwardToHolder(x *exchange, id string, p *control.Pool, m *control.Member) (err error) {
	x.resolution.Pool = p
	if x.parsed, err = x.s.intake.ReadUntouched(&x.in, &x.caller, p); err != nil {
		return err
	}
	if x.in.Kind == intake.Stored { // the query selects a stream, because the request has no body
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
		x.s.intake.ForgetResponse(id)
	}
	return err
}

// pinToStored restricts a follow-up of a stored response to the worker that has the response. It returns
// a not-found error for a response or conversation that may belong to another tenant.
func pinToStored(x *exchange) error {
	if id := x.parsed.Req.PreviousResponseID; id != "" {
		p, m, foreign := x.s.intake.LocateResponse(&x.in, &x.caller, id)
		switch {
		case foreign, m == nil && !x.in.Snap.Private(x.resolution.Pool):
			return previousNotFound(id)
		case m != nil && p == x.resolution.Pool:
			x.facts.Only = m // the queue may dispatch other requests while this one waits
		}
	}
	if id := x.parsed.Req.ConversationID; id != "" && !x.in.Snap.Private(x.resolution.Pool) {
		return conversationNotFound(id)
	}
	return nil
}
