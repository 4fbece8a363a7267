package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/http1"
	"tierway/openai"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/telemetry"
)

// addition is a field that the gateway adds to a request.
type addition uint8

const (
	nothingAdded  addition = iota
	usageAdded             // requests the usage, for accounting
	priorityAdded          // priority in the engine's own queue
)

// sentPriority is the priority field of the request to an engine.
type sentPriority struct {
	value int64
	set   bool
}

// enginePriority returns the priority for the engine's own queue. The class of the request determines
// it; the client can choose a less urgent one. It is not set for engines without priorities.
func (a *attempt) enginePriority() sentPriority {
	x := a.x
	value, set := openai.EnginePriority(int(x.parsed.Class), x.parsed.Req.Priority, x.parsed.Req.PriorityGiven)
	set = set || value != 0 && x.in.Dialect == openai.Messages // sent as a header: the body has no such field
	switch {
	case !set || !a.m.Engine().TakesPriority():
		return sentPriority{}
	// The engine may restart with priorities: then the client's urgent priority must not pass.
	case a.m.RejectsPriority.Load():
		return sentPriority{0, x.parsed.Req.PriorityGiven && x.parsed.Req.Priority < 0}
	}
	return sentPriority{value, true}
}

// omitAddition makes later requests to the worker omit the field that its engine refused, until the
// worker has been down.
func (a *attempt) omitAddition(refused addition) {
	switch refused {
	case priorityAdded:
		a.m.RejectsPriority.Store(true)
		a.x.s.log.Info("the engine rejects priorities; requests omit them until it restarts", "worker", a.m.Name)
	case usageAdded:
		a.m.RejectsAccounting.Store(true)
		a.x.s.log.Info("the engine rejects a field for accounting; requests omit it until it restarts", "worker", a.m.Name)
	}
}

// sendRequest sends the request to the worker and returns the head of the answer. addUsage requests the
// usage from the engine.
func (a *attempt) sendRequest(ctx context.Context, addUsage bool, priority sentPriority) (*http1.Response, error) {
	x := a.x
	req := &a.request
	*req = http1.Request{
		Method: workerMethod(&x.in),
		Path:   x.in.WorkerPath,
		Header: workerHeader(x.in.HTTP.Header, x.id[:]),
		Fresh:  x.parsed.AtMostOnce(),
	}
	telemetry.Inject(req.Header, a.span)
	if q := workerQuery(&x.in); q != "" {
		req.Path += "?" + escapedQuery(q)
	}
	edit := openai.Edit{
		Model:        x.resolution.Resolution.Model,
		IncludeUsage: addUsage,
		CacheSalt:    saltFor(&x.parsed, a.m),
		Priority:     priority.value,
		SetPriority:  priority.set,
		CacheControl: x.resolution.Pool.CacheControl,
		AllowFields:  x.resolution.Pool.AllowFields,
	}
	if a.stage != nil {
		a.stage.apply(req, &edit)
	}
	if x.parsed.Req.MaxTokens > 0 {
		edit.MaxTokens = x.parsed.MaxTokensAt(x.resolution.Pool)
		a.maxTokens = edit.MaxTokens
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
		// The cache salt is not listed: it isolates tenants, so it is sent even if the engine refuses it.
		a.addsUsage = x.parsed.Req.AddedFields(openai.Edit{IncludeUsage: addUsage})
		a.addsPriority = x.parsed.Req.AddedFields(openai.Edit{Priority: priority.value, SetPriority: priority.set})
		if x.in.Dialect == openai.Messages && priority.set && priority.value != 0 && !x.resolution.Free(&x.in) {
			req.Header["X-Vllm-Priority"] = []string{strconv.FormatInt(priority.value, 10)}
			a.addsPriority = append(a.addsPriority, "priority") // the engine's error names the field, not the header
		}
	}
	send := a.m.Worker.Send
	if x.parsed.Upload != nil {
		send = func(ctx context.Context, r *http1.Request) (*http1.Response, error) { return a.sendUpload(ctx, r) }
	}
	defer func() { // also after a panic
		if req.BodyInUse {
			x.in.Memory.KeepBody()
		}
		*req = http1.Request{} // so that the request's body can be freed while the answer is relayed
	}()
	resp, err := send(ctx, req)
	if err == nil {
		a.status, a.headAt = resp.Status, time.Now()
		if x.in.Dialect != openai.Other { // raw answers are relayed without parsing
			err = unpackBody(resp)
		}
	}
	return resp, err
}

// workerQuery returns the query for the worker: without the version of Azure's API, which no engine has. On the paths
// of a pool it is unchanged.
func workerQuery(in *intake.Inbound) string {
	u := in.HTTP.URL
	if in.Dialect == openai.Other || !strings.HasPrefix(u.Path, "/openai/") ||
		!strings.Contains(u.RawQuery, azureVersion) {
		return u.RawQuery
	}
	parts := slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(part string) bool {
		return strings.HasPrefix(part, azureVersion)
	})
	return strings.Join(parts, "&")
}

const azureVersion = "api-version="

// workerMethod returns the method of the request to the worker. Engines do not serve HEAD on their GET routes.
func workerMethod(in *intake.Inbound) string {
	if in.Dialect != openai.Other && in.HTTP.Method == http.MethodHead {
		return http.MethodGet
	}
	return in.HTTP.Method
}

// escapedQuery returns a query that is valid in a request line. net/http's server accepts bytes that a
// request line must not contain: non-ASCII bytes, and over HTTP/2 also spaces. They are
// percent-encoded, which does not change their meaning. # is encoded too, because some engines would
// end the query there.
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

// inQuery reports whether a byte of a query may be sent unescaped.
func inQuery(c byte) bool { return c > ' ' && c < 0x7f && c != '#' }

// saltFor returns the salt of the prefix cache for the request to a worker. A salt per tenant prevents
// tenants from detecting the prompts of others by response times. The salt is omitted only for engines
// without this feature, and if the client sent none. An unknown engine receives it: a refusal is
// better than a shared cache.
func saltFor(p *intake.Parsed, m *control.Member) string {
	if p.Salt == "" || p.Req.CacheSalt != "" {
		return p.Salt
	}
	if e := m.Engine(); e != "" && e != openai.EngineAuto && !e.TakesCacheSalt() {
		return ""
	}
	return p.Salt
}

// errClientBody is the fault of an attempt that ended because the client did not send the whole body.
var errClientBody = errors.New("the client's body failed")

// upload is a request body that streams to the worker of an attempt.
type upload struct {
	*intake.Upload
	a *attempt
}

// Read reads a piece for the worker. timeouts.idle runs between two reads, while the worker takes
// the piece.
func (u upload) Read(p []byte) (int, error) {
	u.a.watch.stopSilence()
	n, err := u.Upload.Read(p)
	within := u.a.x.in.Snap.File.Timeouts.Idle
	if u.IsWhole() {
		within = u.a.firstByte
	}
	u.a.watch.startSilence(within, errIdleTimeout)
	return n, err
}

// sendUpload sends a request with a streaming body. It ends the upload, unless no part of the body was
// read: then another worker may receive it.
func (a *attempt) sendUpload(ctx context.Context, req *http1.Request) (*http1.Response, error) {
	u := upload{a.x.parsed.Upload, a}
	req.Upload, req.UploadLength = u, u.Length
	release := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), context.Canceled) { // net/http cancels after the client's side failed
			u.Stop()
		}
	})
	resp, err := a.m.Worker.Send(ctx, req)
	release()
	if err == nil || !u.Untouched() {
		u.End()
	}
	return resp, err
}

// uploadFailure returns the failure of an attempt if the client's side of its upload failed, or nil.
func (a *attempt) uploadFailure() *failure {
	if a.x.parsed.Upload == nil {
		return nil
	}
	cause, answer := a.x.parsed.Upload.ClientFailure()
	if cause == nil {
		return nil
	}
	return &failure{sent: true, fault: excluded("%w: %w", errClientBody, cause), err: translate(answer)}
}
