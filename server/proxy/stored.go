package proxy

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"

	"tierway/decisions"
	"tierway/http1"
	"tierway/openai"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/store"
)

// rememberResponse stores which worker has the response, if the engine stores it.
func (a *attempt) rememberResponse(id string) {
	if a.x.parsed.Stores() {
		a.remember(id, a.x.parsed.Req.Model)
	}
}

// remember stores which worker has a response or conversation.
func (a *attempt) remember(id, model string) {
	x := a.x
	x.s.intake.RememberResponse(&x.in, store.StoredResponse{
		ID:     id,
		Tenant: x.caller.Tenant,
		Pool:   x.resolution.Pool.Name,
		Worker: a.m.Name,
		Model:  model,
		Server: x.resolution.Pool.ServerOf(a.m.Name),
	})
}

// conversationMax is the largest part of an answer, in bytes, in which the id of a new conversation is
// searched. The answer has only the id, the time and the metadata, of at most 16 pairs with 576 bytes.
const conversationMax = 64 << 10

// createsConversation reports whether a request on a passed path creates a conversation.
func createsConversation(r *http.Request) bool {
	id, _, ok := openai.ConversationPath(r.URL.Path)
	return ok && id == "" && r.Method == http.MethodPost
}

// rememberConversation reads the answer to a request that creates a conversation, and stores which worker has
// the conversation. The body of resp is restored.
func (a *attempt) rememberConversation(resp *http1.Response) *failure {
	a.watch.startSilence(a.x.in.Snap.File.Timeouts.Idle, errIdleTimeout)
	body, err := io.ReadAll(io.LimitReader(resp.Body, conversationMax))
	a.watch.stopSilence()
	if err != nil {
		return a.sendFailure(&http1.SendError{Phase: http1.PhaseBody, Err: err})
	}
	if answer := openai.ReadAnswer(openai.Other, body); answer.Valid {
		a.remember(answer.ID, "")
	}
	resp.Body = readCloser{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	return nil
}

// serveStored serves a route about a stored response at the worker that has it.
func (x *exchange) serveStored() error {
	if err := x.in.CheckHeaders(); err != nil {
		return err
	}
	p, m, foreign, err := x.s.intake.LocateResponse(&x.in, &x.caller, x.in.PathID)
	switch {
	case m != nil:
		x.in.WorkerPath = "/v1" + strings.Replace(x.in.Pattern, ":id", url.PathEscape(x.in.PathID), 1)
		return x.forwardToHolder(x.in.PathID, p, m)
	case !foreign && intake.PassingPool(&x.in, &x.caller) != nil:
		return x.passUnrouted()
	case err != nil:
		return err
	}
	return responseNotFound(x.in.PathID)
}

// passStored serves a request about a stored response or conversation on a path that passes through a pool.
// done reports that the request is served, or refused with err.
func (x *exchange) passStored() (done bool, err error) {
	private, notFound := x.in.Snap.Private(x.resolution.Pool), responseNotFound
	id, below, ok := openai.ResponsePath(x.in.HTTP.URL.Path)
	// A POST to /responses/compact is an action: no API has a POST to a response itself.
	action := x.in.HTTP.Method == http.MethodPost && below == ""
	conversation, _, ofConversation := openai.ConversationPath(x.in.HTTP.URL.Path)
	ofConversation = ofConversation && conversation != ""
	switch {
	case ofConversation && ok: // no API has such a path, and only one of the two ids would be checked
		return true, conversationNotFound(conversation)
	case ofConversation:
		if !private {
			return false, nil
		}
		id, action, notFound = conversation, false, conversationNotFound
	case !ok || id == "":
		return false, nil
	}
	p, m, foreign, err := x.s.intake.LocateResponse(&x.in, &x.caller, id)
	switch {
	case m != nil:
		x.in.WorkerPath = x.in.HTTP.URL.EscapedPath()
		return true, x.forwardToHolder(id, p, m)
	case foreign:
		return true, notFound(id)
	case action:
		return false, nil
	case err != nil && !intake.IsOnlyHolder(x.in.Snap, x.caller.Caller, x.resolution.Pool, ofConversation):
		return true, err
	case !private:
		return true, notFound(id)
	}
	return false, nil
}

// forwardToHolder sends a request about a stored response or conversation to the worker that has it.
func (x *exchange) forwardToHolder(id string, p *control.Pool, m *control.Member) (err error) {
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
	if err := x.pinToStored(); err != nil {
		return err
	}
	err = x.forwardTo(m)
	_, below, ok := openai.ConversationPath(x.in.HTTP.URL.Path)
	if !ok {
		_, below, _ = openai.ResponsePath(x.in.HTTP.URL.Path)
	}
	if err == nil && x.in.HTTP.Method == http.MethodDelete && below == "" && x.answer.status == http.StatusOK {
		x.s.intake.ForgetResponse(&x.in, &x.caller, id)
	}
	return err
}

// pinToStored restricts a request that continues a stored response or conversation to the worker that has it.
// It returns a not-found error for a response or conversation that may belong to another tenant, and the error of a
// failed look-up.
func (x *exchange) pinToStored() error {
	if id := x.parsed.Req.PreviousResponseID; id != "" {
		if err := x.pinToHolder(id, false, previousNotFound); err != nil {
			return err
		}
	}
	id := x.parsed.Req.ConversationID
	switch {
	case id == "":
		return nil
	case !x.in.Snap.Private(x.resolution.Pool):
		return conversationNotFound(id)
	}
	return x.pinToHolder(id, true, conversationNotFound)
}

// pinToHolder restricts the request to the worker that has a response, or a conversation, if that is a worker of its
// pool.
func (x *exchange) pinToHolder(id string, conversation bool, notFound func(id string) error) error {
	pool := x.resolution.Pool
	p, m, foreign, err := x.s.intake.LocateResponse(&x.in, &x.caller, id)
	switch {
	case err != nil && !intake.IsOnlyHolder(x.in.Snap, x.caller.Caller, pool, conversation):
		return err
	case foreign, m == nil && !x.in.Snap.Private(pool):
		return notFound(id)
	case m != nil && p == pool:
		x.facts.Only = m // the queue may dispatch other requests while this one waits
	}
	return nil
}
