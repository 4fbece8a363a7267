package proxy

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/openai"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/tenants"
)

// withheld are the request headers that never reach a worker: the client's
// credentials and cookies, what says who it is, what only this hop means, and
// what the gateway sets itself.
var withheld = map[string]bool{
	"Authorization": true, "Proxy-Authorization": true, "X-Api-Key": true, "Api-Key": true, "Cookie": true,
	"X-Tenant-Id": true, "X-User-Id": true, "X-Tenant": true, "Openai-Organization": true, "Openai-Project": true,
	"X-Model-Tier": true, "X-Request-Priority": true, "X-Request-Id": true,
	"Forwarded": true, "X-Real-Ip": true, "X-Client-Ip": true, "X-Original-Forwarded-For": true, "True-Client-Ip": true,
	"Cf-Connecting-Ip": true, "Via": true,
	"Origin": true, "Referer": true,
	"Endpoint-Load-Metrics-Format": true, // asks for the engine's load

	"Baggage":    true, // what callers tell each other is not for engines
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true, "Te": true,
	"Trailer":           true,
	"Transfer-Encoding": true, "Upgrade": true, "Expect": true, "Host": true,
	"Content-Length": true, "Content-Encoding": true, "Accept-Encoding": true,
}

// ownHeaders are the headers that the gateway sets in a request to a worker, or by
// which it has read the request. Other spellings of them are withheld too.
var ownHeaders = map[string]bool{"Content-Type": true, "User-Agent": true, "Traceparent": true, "Tracestate": true}

// steering begin the headers by which front ends of engines choose a request's rank,
// priority or peer, some by its address: vLLM's, SGLang's and llm-d's.
var steering = [...]string{
	"X-Vllm-", "X-Sglang-", "X-Data-Parallel-", "X-Dp-Rank", "X-Prefiller-", "X-Encoder-Host", "X-Gateway-Destination-",
}

// withholds reports whether a request header of that canonical name never reaches a
// worker.
func withholds(name string) bool {
	if withheld[name] || strings.HasPrefix(name, forwardedPrefix) {
		return true
	}
	for _, prefix := range steering {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// isUnderscoreAlias reports whether a header is another one to servers that read an
// underscore as a hyphen, as CGI and WSGI do: one that is withheld or the gateway's
// own.
func isUnderscoreAlias(name string) bool {
	if strings.IndexByte(name, '_') < 0 {
		return false
	}
	spelt := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	return withholds(spelt) || ownHeaders[spelt]
}

// forwardedPrefix begins the headers by which proxies describe a client.
const forwardedPrefix = "X-Forwarded-"

// workerHeader returns the headers that a worker is sent for a client's. What
// the client's Connection header names ends at this hop too.
func workerHeader(from http.Header, requestID string) http.Header {
	to := make(http.Header, len(from)+1)
	for k, v := range from {
		if !withholds(k) && !isUnderscoreAlias(k) {
			to[k] = v
		}
	}
	for _, line := range from["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			to.Del(strings.TrimSpace(name))
		}
	}
	if control.IsUUID(requestID) { // an engine may refuse any other
		to["X-Request-Id"] = []string{requestID}
	}
	if via := intake.Via(from); len(via) > 0 {
		to["Via"] = via
	}
	return to
}

// relayed are the answer headers that pass from every worker: of content, of caching and
// of when to come again.
var relayed = map[string]bool{
	"Content-Type": true, "Content-Disposition": true, "Content-Language": true, "Content-Range": true,
	"Accept-Ranges": true, "Allow": true,
	"X-Content-Type-Options": true, "Content-Security-Policy": true, // which protect those who open the content
	"Etag": true, "Last-Modified": true, "Cache-Control": true, "Expires": true, "Vary": true, "Age": true,
	"Retry-After": true, "Retry-After-Ms": true,
}

// clientHeader copies what a client gets of a worker's headers: an allow-list, because
// proxies and browsers obey headers that no list of the others would have. What a worker
// says of rate limits is left out beside the tenant's own.
func clientHeader(x *exchange, to, from http.Header) {
	hasOwn := hasRateHeaders(x)
	for k, v := range from {
		switch {
		case k == "Vary":
			to[k] = append(slices.Clip(to[k]), v...) // to what CORS depends on
		case relayed[k]:
			to[k] = v
		case !openai.MayRelay(k):
		case strings.HasPrefix(k, "X-Ratelimit-") || strings.HasPrefix(k, "Anthropic-Ratelimit-"):
			if !hasOwn {
				to[k] = v
			}
		case strings.HasPrefix(k, "Openai-"), strings.HasPrefix(k, "Anthropic-"),
			slices.Contains(x.resolution.Pool.ResponseHeaders, k):
			to[k] = v
		}
	}
}

// passedHeader copies what only the client of a passed path gets: how the body is
// encoded, and where else the answer lies as far as the gateway leads there.
func (a *attempt) passedHeader(to, from http.Header) {
	if v := from["Content-Encoding"]; v != nil {
		to["Content-Encoding"] = v
	}
	for _, name := range []string{"Location", "Content-Location"} {
		if v := from.Get(name); v != "" {
			if ref, ok := a.m.Worker.Reference(v); ok {
				to[name] = []string{ref}
			}
		}
	}
}

// decisionHeaders sets the headers that say what was decided.
func (x *exchange) decisionHeaders(h *headerSet) {
	h.set("Openai-Processing-Ms", formatMs(time.Since(x.in.Start)))
	if !x.in.Snap.File.RoutingHeaders || len(x.dispatch.attempts) == 0 {
		return
	}
	tierHeaders(&x.resolution, h)
	last := x.dispatch.attempts[len(x.dispatch.attempts)-1]
	h.set("X-Routed-To", last.m.Name)
	if reason := last.lease.Reason(); reason != "" {
		h.set("X-Route-Reason", string(reason))
	}
	x.wait.queueHeader(h)
}

// queueHeader says how long the request has waited for workers.
func (w *wait) queueHeader(h *headerSet) {
	h.set("X-Queue-Ms", strconv.FormatFloat(ms(w.total), 'f', -1, 64))
}

// tierHeaders say where the request went and why.
func tierHeaders(res *intake.Resolution, h *headerSet) {
	h.set("X-Model-Tier", res.Pool.Name)
	reason := res.Rule
	if res.Note != "" {
		reason += "; " + res.Note
	}
	h.set("X-Tier-Reason", reason)
}

// streamHeaders sets what keeps proxies from holding a stream back.
func streamHeaders(h *headerSet) {
	h.set("Content-Type", "text/event-stream")
	h.set("Cache-Control", "no-cache, no-transform")
	h.set("X-Accel-Buffering", "no")
}

// openHeaders are those that are known when a heartbeat opens an answer.
func openHeaders(x *exchange, h *headerSet) {
	streamHeaders(h)
	if x.in.Snap.File.RoutingHeaders {
		tierHeaders(&x.resolution, h)
	}
}

// stainlessTimeout is how long the client's SDK waits, in seconds; nothing that
// comes later reaches the application.
func stainlessTimeout(h http.Header) (time.Duration, bool) {
	v := h.Get("X-Stainless-Timeout")
	if v == "" {
		return 0, false
	}
	s, err := strconv.ParseFloat(v, 64)
	if err != nil || !(s > 0) || s > 1e6 {
		return 0, false
	}
	return time.Duration(s * float64(time.Second)), true
}

// totalTime is how long a request of that class may take.
func totalTime(snap *control.Snapshot, c tenants.Class) time.Duration {
	t := snap.File.Timeouts.Total
	switch c {
	case tenants.Background:
		return t.Background
	case tenants.Batch:
		return t.Batch
	}
	return t.Interactive
}
