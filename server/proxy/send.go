package proxy

import (
	"context"
	"strconv"
	"time"

	"tierway/http1"
	"tierway/openai"
	"tierway/server/control"
	"tierway/telemetry"
)

// addition is what a request has beyond its client's own fields.
type addition uint8

const (
	nothingAdded  addition = iota
	usageAdded             // asks for the usage that accounting needs
	priorityAdded          // for the engine's own queue
)

// sentPriority is the priority in the engine's own queue that a request is sent with.
type sentPriority struct {
	value int64
	set   bool
}

// enginePriority is the request's: of an engine that takes one, by its class, and never
// more urgent than that.
func enginePriority(a *attempt) sentPriority {
	x := a.x
	value, set := openai.EnginePriority(int(x.parsed.Class), x.parsed.Req.Priority, x.parsed.Req.PriorityGiven)
	set = set || value != 0 && x.in.Dialect == openai.Messages // whose body has no such field
	switch {
	case !set || !a.m.Engine().TakesPriority():
		return sentPriority{}
	case a.m.RejectsPriority.Load(): // it may be started anew with priorities, and what is urgent must not pass then
		return sentPriority{0, x.parsed.Req.PriorityGiven && x.parsed.Req.Priority < 0}
	}
	return sentPriority{value, true}
}

// omitAddition omits the field that the engine has refused, until the worker was down.
func omitAddition(a *attempt, refused addition) {
	switch refused {
	case priorityAdded:
		a.m.RejectsPriority.Store(true)
		a.x.s.log.Info("the engine rejects priorities; requests omit them until it restarts", "worker", a.m.Name)
	case usageAdded:
		a.m.RejectsAccounting.Store(true)
		a.x.s.log.Info("the engine rejects a field for accounting; requests omit it until it restarts", "worker", a.m.Name)
	}
}

// sendRequest writes the request to the worker and waits for the answer's header.
func sendRequest(ctx context.Context, a *attempt, account bool, priority sentPriority) (*http1.Response, error) {
	x := a.x
	req := &http1.Request{
		Method: x.in.HTTP.Method,
		Path:   x.in.WorkerPath,
		Header: workerHeader(x.in.HTTP.Header, x.in.RequestID),
		Fresh:  x.parsed.Once(),
	}
	telemetry.Inject(req.Header, a.span)
	if q := x.in.HTTP.URL.RawQuery; q != "" {
		req.Path += "?" + escapedQuery(q)
	}
	edit := openai.Edit{
		Model:        x.resolution.Resolution.Model,
		IncludeUsage: account,
		CacheSalt:    saltFor(x, a.m),
		Priority:     priority.value,
		SetPriority:  priority.set,
		AllowFields:  x.resolution.Pool.AllowFields,
	}
	a.addsUsage, a.addsPriority = nil, nil
	switch {
	case x.parsed.Upload != nil:
	case x.in.Dialect == openai.Other:
		req.Body = x.parsed.Req.Splice(openai.Edit{
			CacheSalt:   x.parsed.Salt,
			Priority:    priority.value,
			SetPriority: priority.set,
			AllowFields: x.resolution.Pool.AllowFields,
		})
	case len(x.parsed.Req.Body) == 0:
		req.Body = [][]byte{x.parsed.Req.Body}
	default:
		req.Body = x.parsed.Req.Splice(edit)
		// Isolation is never given up for an engine that refuses it.
		a.addsUsage = x.parsed.Req.AddedFields(openai.Edit{IncludeUsage: account})
		a.addsPriority = x.parsed.Req.AddedFields(openai.Edit{Priority: priority.value, SetPriority: priority.set})
		if x.in.Dialect == openai.Messages && priority.set && priority.value != 0 && !x.resolution.Free(&x.in) {
			req.Header["X-Vllm-Priority"] = []string{strconv.FormatInt(priority.value, 10)}
			a.addsPriority = append(a.addsPriority, "priority") // as the engine's refusal calls it
		}
	}
	send := a.m.Worker.Send
	if x.parsed.Upload != nil {
		send = func(ctx context.Context, r *http1.Request) (*http1.Response, error) { return sendUpload(ctx, a, r) }
	}
	resp, err := send(ctx, req)
	if err == nil {
		a.status, a.headAt = resp.Status, time.Now()
		if x.in.Dialect != openai.Other { // whose bytes nothing here reads
			err = unpackBody(resp)
		}
	}
	return resp, err
}

// escapedQuery returns a query as it can stand in a request line. net/http's server
// accepts bytes that a request line must not hold: others than ASCII, over HTTP/2
// also blanks. They are percent-encoded, which leaves their meaning as it is. So is
// #, at which some engines would end the query.
func escapedQuery(raw string) string {
	first := 0
	for first < len(raw) && inQuery(raw[first]) {
		first++
	}
	if first == len(raw) {
		return raw
	}
	b := append(make([]byte, 0, len(raw)+16), raw[:first]...)
	for i := first; i < len(raw); i++ {
		if c := raw[i]; inQuery(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&0x0f])
		}
	}
	return string(b)
}

const upperHex = "0123456789ABCDEF"

// inQuery reports whether a byte of a query may be sent as it is.
func inQuery(c byte) bool { return c > ' ' && c < 0x7f && c != '#' }

// saltFor is the salt of the prefix cache that a worker is sent: the tenant's own,
// so that no tenant can find out there what another one has asked. It is left out only
// for engines that are known to take none, unless a client has sent one itself: an
// engine that is not known yet may refuse it, which is better than sharing.
func saltFor(x *exchange, m *control.Member) string {
	e := m.Engine()
	known := e != "" && e != openai.EngineAuto
	if x.parsed.Salt == "" || x.parsed.Req.CacheSalt == "" && known && !e.TakesCacheSalt() {
		return ""
	}
	return x.parsed.Salt
}
