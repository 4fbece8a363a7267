package server

import (
	"net/http"
	"slices"
	"time"

	"tierway/openai"
	"tierway/workers"
)

// fieldPriority is what openai.Request.AddedFields calls the priority.
const fieldPriority = "priority"

// rank is the place in the engine's own queue that a request is sent with.
type rank struct {
	value int64
	set   bool
}

// rank is the request's: of an engine that takes one, by its class, and never
// more urgent than that.
func (a *attempt) rank() rank {
	x := a.x
	value, set := openai.EnginePriority(int(x.class), x.req.Priority, x.req.PriorityGiven)
	switch {
	case !set || !a.m.engine().TakesPriority():
		return rank{}
	case a.m.unranked.Load(): // it may be started anew with priorities, and what is urgent must not pass then
		return rank{0, x.req.PriorityGiven && x.req.Priority < 0}
	}
	return rank{value, true}
}

// leaveOut leaves out from now on what the engine has refused.
func (a *attempt) leaveOut(refused [2]string) {
	for _, name := range refused {
		switch name {
		case "":
		case fieldPriority:
			a.m.unranked.Store(true)
			a.x.s.log.Info("the engine takes no priorities; they are left out from now on", "worker", a.m.name)
		default:
			a.m.refuses.Store(true)
			a.x.s.log.Info("the engine refuses a field that accounting adds; it is left out from now on", "worker", a.m.name)
		}
	}
}

// send writes the request to the worker and waits for the answer's header.
func (a *attempt) send(account bool, place rank) (*workers.Response, error) {
	x := a.x
	req := &workers.Request{Method: x.r.Method, Path: x.workerPath, Header: workerHeader(x.r.Header, x.d.RequestID), Fresh: x.once()}
	if q := x.r.URL.RawQuery; q != "" {
		req.Path += "?" + q
	}
	edit := openai.Edit{Model: x.verdict.Model, IncludeUsage: account, CacheSalt: x.saltFor(a.m), Priority: place.value, SetPriority: place.set}
	a.added, a.asksUsage = nil, false
	switch {
	case x.dialect == openai.Other:
		req.Body = x.req.Splice(openai.Edit{CacheSalt: x.salt, Priority: place.value, SetPriority: place.set})
	case len(x.req.Body) == 0 || x.r.Method != http.MethodPost:
		req.Body = [][]byte{x.req.Body}
	default:
		req.Body = x.req.Splice(edit)
		edit.Model, edit.CacheSalt = "", "" // isolation is never given up for an engine that refuses it
		a.added = x.req.AddedFields(edit)
		a.asksUsage = slices.ContainsFunc(a.added, func(name string) bool { return name != fieldPriority })
	}
	resp, err := a.m.worker.Send(a.ctx, req)
	if err == nil {
		a.status, a.headAt = resp.Status, time.Now()
		err = plainBody(resp)
	}
	return resp, err
}
