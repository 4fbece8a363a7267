package proxy

import (
	"fmt"
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

// withheld contains the request headers that never reach a worker: the client's credentials, cookies
// and identity, hop-by-hop headers, and headers that the gateway sets itself.
var withheld = map[string]bool{
	"Authorization": true, "Proxy-Authorization": true, "X-Api-Key": true, "Api-Key": true, "Cookie": true,
	"X-Tenant-Id": true, "X-User-Id": true, "X-Tenant": true, "Openai-Organization": true, "Openai-Project": true,
	"X-Model-Tier": true, "X-Request-Priority": true, "X-Request-Id": true,
	"Forwarded": true, "X-Real-Ip": true, "X-Client-Ip": true, "X-Original-Forwarded-For": true, "True-Client-Ip": true,
	"Cf-Connecting-Ip": true, "Via": true,
	"Origin": true, "Referer": true,
	"Endpoint-Load-Metrics-Format": true, // requests the engine's load

	"Baggage":    true, // context of the client's own services
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true, "Te": true,
	"Trailer":           true,
	"Transfer-Encoding": true, "Upgrade": true, "Expect": true, "Host": true,
	"Content-Length": true, "Content-Encoding": true, "Accept-Encoding": true,
}

// ownHeaders contains headers that the gateway sets in the request to a worker, or evaluates itself.
// Their spellings with underscores are withheld.
var ownHeaders = map[string]bool{"Content-Type": true, "User-Agent": true, "Traceparent": true, "Tracestate": true}

// steering contains the prefixes of headers with which front ends of engines (vLLM, SGLang, llm-d)
// choose a request's rank, priority or peer. Some of these headers contain a network address.
var steering = [...]string{
	"X-Vllm-", "X-Sglang-", "X-Data-Parallel-", "X-Dp-Rank", "X-Prefiller-", "X-Encoder-Host", "X-Gateway-Destination-",
}

// withholds reports whether the request header with that canonical name never reaches a worker.
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

// isUnderscoreAlias reports whether a header name becomes a withheld header or one of ownHeaders if
// underscores are read as hyphens, as CGI and WSGI do.
func isUnderscoreAlias(name string) bool {
	if strings.IndexByte(name, '_') < 0 {
		return false
	}
	alias := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	return withholds(alias) || ownHeaders[alias]
}

// forwardedPrefix is the prefix of the headers in which proxies describe a client.
const forwardedPrefix = "X-Forwarded-"

// workerHeader returns the headers of the request to a worker. Headers that the client's Connection
// header names are hop-by-hop and are omitted. id is the request id as a value of a header.
func workerHeader(from http.Header, id []string) http.Header {
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
	if control.IsUUID(id[0]) { // engines may reject other forms
		to["X-Request-Id"] = id
	}
	if via := intake.Via(from); len(via) > 0 {
		to["Via"] = via
	}
	return to
}

// relayed contains the answer headers that every client receives: headers of content, of caching and
// of retries.
var relayed = map[string]bool{
	"Content-Type": true, "Content-Disposition": true, "Content-Language": true, "Content-Range": true,
	"Accept-Ranges": true, "Allow": true,
	"X-Content-Type-Options": true, "Content-Security-Policy": true, // protect users that open the content
	"Etag": true, "Last-Modified": true, "Cache-Control": true, "Expires": true, "Vary": true, "Age": true,
	"Retry-After": true, "Retry-After-Ms": true,
}

// clientHeader copies the headers of a pool's worker that the client receives. It is an allow-list, because no
// deny-list would contain all headers that proxies and browsers obey. With hasOwn, the tenant has limits of its own,
// and the rate-limit headers of the worker are omitted.
func clientHeader(to, from http.Header, pool *control.Pool, hasOwn bool) {
	for k, v := range from {
		switch {
		case k == "Vary":
			to[k] = append(slices.Clip(to[k]), v...) // keeps the entries of CORS
		case relayed[k]:
			to[k] = v
		case !openai.MayRelay(k):
		case strings.HasPrefix(k, "X-Ratelimit-") || strings.HasPrefix(k, "Anthropic-Ratelimit-"):
			if !hasOwn {
				to[k] = v
			}
		case strings.HasPrefix(k, "Openai-"), strings.HasPrefix(k, "Anthropic-"),
			slices.Contains(pool.ResponseHeaders, k):
			to[k] = v
		}
	}
}

// passedHeader copies the headers that only answers on passed paths have: the encoding of the body,
// and references to other resources if the gateway can serve them.
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

func (x *exchange) decisionHeaders(h *headerSet) {
	h.set("Openai-Processing-Ms", strconv.FormatInt(time.Since(x.in.Start).Milliseconds(), 10))
	kept := x.cached != nil && x.cached.hit != nil
	if !x.in.Snap.File.RoutingHeaders || len(x.dispatch.attempts) == 0 && !kept {
		return
	}
	if tierHeaders(&x.resolution, h); kept {
		return
	}
	last := x.dispatch.attempts[len(x.dispatch.attempts)-1]
	h.set("X-Routed-To", last.m.NameFor(x.in.Dialect))
	if reason := last.lease.Reason(); reason != "" {
		h.set("X-Route-Reason", string(reason))
	}
	if asked := x.parsed.Req.MaxTokens; last.maxTokens > 0 && last.maxTokens < asked {
		h.set("X-Max-Tokens-Lowered", fmt.Sprintf("%d; %d does not fit into the context of %d", last.maxTokens, asked,
			x.resolution.Pool.Context))
	}
	x.wait.queueHeader(h)
}

func (w *wait) queueHeader(h *headerSet) {
	h.set("X-Queue-Ms", strconv.FormatFloat(ms(w.total), 'f', -1, 64))
}

func tierHeaders(res *intake.Resolution, h *headerSet) {
	h.set("X-Model-Tier", res.Pool.Name)
	reason := res.Rule
	if res.Note != "" {
		reason += "; " + res.Note
	}
	h.set("X-Tier-Reason", reason)
}

// streamHeaders sets the headers that prevent proxies from buffering a stream.
func streamHeaders(h *headerSet) {
	h.set("Content-Type", "text/event-stream")
	h.set("Cache-Control", "no-cache, no-transform")
	h.set("X-Accel-Buffering", "no")
}

// stainlessTimeout returns the timeout of the client's SDK, which the SDK sends in seconds. A later
// answer does not reach the application.
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

// totalTime returns the maximum duration of a request of that class.
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

// headerSet adds headers with one allocation for all of their values.
type headerSet struct {
	h      http.Header
	values []string
}

// maxHeaders is the largest number of headers that one headerSet adds.
const maxHeaders = 12

func setInto(h http.Header) headerSet {
	return headerSet{h: h, values: make([]string, 0, maxHeaders)}
}

// set sets a header; name must be in canonical form.
func (s *headerSet) set(name, value string) {
	s.values = append(s.values, value)
	n := len(s.values)
	s.h[name] = s.values[n-1 : n : n]
}
