package proxy

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"tierway/decisions"
	"tierway/openai"
	"tierway/openai/answers"
	"tierway/responsecache"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/store"
	"tierway/telemetry"
)

// Reasons for which a request bypasses the response cache, beside those of its body.
const (
	bypassTenant  answers.Reason = "tenant"   // its tenant may not get kept answers
	bypassNoCache answers.Reason = "no_cache" // Cache-Control of the request
)

// Results of the answer to a request that missed the response cache, beside the reasons of its content.
const (
	answerKept     = "kept"
	answerNoStore  = "no_store" // Cache-Control of the request
	answerFallback = "fallback" // of another pool or model than the request's
	answerDropped  = "dropped"  // its owner was purged meanwhile, or the answer is larger than the whole memory
	answerFailed   = "failed"   // the request failed, or its client left
)

// cacheReasons returns the reasons of bypasses and the results of answers, for the labels of metrics.
func cacheReasons() (bypasses, results []string) {
	for _, r := range []answers.Reason{answers.Tools, answers.Media, answers.Choices, answers.Logprobs, answers.Stored,
		answers.Handover, answers.Temperature, answers.Size, bypassTenant, bypassNoCache} {
		bypasses = append(bypasses, string(r))
	}
	results = []string{answerKept, answerNoStore, answerFallback, answerDropped, answerFailed}
	for _, r := range []answers.Reason{answers.Finish, answers.MoreContent, answers.Size, answers.Choices,
		answers.Logprobs} {
		results = append(results, string(r))
	}
	return bypasses, results
}

// cached is the state of a request whose pool has a response cache.
type cached struct {
	memory  *responsecache.Memory
	shared  *store.Answers // in Redis; nil unless gateways share kept answers
	secret  string         // with which shared answers are encrypted; "": they are plain text
	metrics *telemetry.ResponseCache

	record     decisions.Cache
	key        responsecache.Key
	pool       *control.Pool
	generation uint64
	recorder   *answers.Recorder // nil if the answer must not be kept
	directives cacheControl
	hit        *responsecache.Entry // the answer; nil without a hit
	near       *near                // state of the semantic look-up; nil without one
	embedding  time.Duration        // how long the embedding for it took
	span       trace.Span           // of the look-up, if it embeds a text

	sharedGeneration string // of the tenant in Redis
	unshared         bool   // Redis has not told it
}

// near is the state of a semantic look-up.
type near struct {
	group    responsecache.Key
	key      responsecache.Key
	vector   []float32
	shadowed *responsecache.Entry // the answer that shadow mode did not send; nil without one
}

// newCached returns the state of a request to a pool with a response cache.
func (px *Proxy) newCached(snap *control.Snapshot, pool *control.Pool) *cached {
	return &cached{memory: &px.cache, shared: px.control.Stores.Answers, secret: snap.File.ResponseCache.Encrypt,
		metrics: px.metrics.Cache, pool: pool}
}

// answerFromCache answers the request from the response cache of its pool, and reports whether it did. It neither
// queues nor books a worker.
func (x *exchange) answerFromCache() bool {
	pool := x.resolution.Pool
	if pool.ResponseCache == nil || !mayBeCached(&x.in, &x.parsed, &x.resolution) {
		return false
	}
	c := x.s.newCached(x.in.Snap, pool)
	x.cached = c
	f := x.s.buffers.forms.Get().(*answers.FormReader)
	defer x.s.buffers.putForm(f)
	form, why := x.readForm(f)
	if why != "" {
		c.metrics.Bypass(string(why))
		c.record.Result, c.record.Reason = telemetry.CacheBypass.String(), string(why)
		x.cacheHeaders("bypass", "fwd=bypass; detail="+string(why))
		return false
	}
	return x.lookUpAnswer(&form)
}

// noteCache explains what the response cache would do. The worker is still explained, for the time after the answer.
func (n *explainer) noteCache() {
	x := n.x
	pool := x.resolution.Pool
	if pool.ResponseCache == nil || !mayBeCached(&x.in, &x.parsed, &x.resolution) {
		return
	}
	c := x.s.newCached(x.in.Snap, pool)
	x.cached = c
	record := &c.record
	_, why := x.readForm(new(answers.FormReader))
	entry, ok := c.memory.Peek(&c.key, x.in.Start)
	if c.shared != nil && why == "" {
		entry, ok = x.getAnswer(x.in.Start)
	}
	exact := pool.ResponseCache.Exact
	ok = ok && exact != nil && c.usable(&entry, exact.TTL, x.in.Start)
	switch {
	case why != "":
		record.Result, record.Reason = telemetry.CacheBypass.String(), string(why)
		n.addNote("it bypasses the response cache: %s", why)
	case ok:
		record.Result, record.AgeMs = telemetry.CacheExactHit.String(), ms(x.in.Start.Sub(entry.At))
		n.addNote("the response cache would answer it; the worker is for the time after that")
	default:
		record.Result = telemetry.CacheMiss.String()
		n.addNote("the response cache has no answer to it")
		if pool.ResponseCache.Semantic != nil {
			n.addNote("whether it has one to a similar request is not known: explain embeds no text")
		}
	}
}

// mayBeCached reports whether the endpoint of the request generates one answer.
func mayBeCached(in *intake.Inbound, p *intake.Parsed, res *intake.Resolution) bool {
	return in.Kind == intake.Infer && in.Dialect.Generates() && p.Upload == nil && !res.Free(in)
}

// readForm reads the form of the request, or why it bypasses the cache.
func (x *exchange) readForm(f *answers.FormReader) (form answers.Form, why answers.Reason) {
	c := x.cached
	if !x.caller.ResponseCache {
		return form, bypassTenant
	}
	stores := x.parsed.Stores()
	form = f.Read(x.parsed.Req, stores, x.resolution.Pool.ResponseCache.AnyTemperature())
	if form.Bypass != "" {
		return form, form.Bypass
	}
	c.key = responsecache.Key{Partition: c.partition(&x.in, &x.caller, &x.resolution), Body: form.Exact}
	if c.directives = readCacheControl(x.in.HTTP.Header); c.directives.maxAge == 0 {
		c.recordAnswer(x.in.Dialect) // it replaces the kept one
		c.generation = c.memory.Generation(c.key.Owner.Name)
		if c.shared != nil {
			x.getAnswer(x.in.Start) // for the generation
		}
		return form, bypassNoCache
	}
	return form, ""
}

// partition returns which requests may get the answer to the request. It records the group that shares the answer.
func (c *cached) partition(in *intake.Inbound, caller *intake.Caller, res *intake.Resolution) responsecache.Partition {
	owner := responsecache.Owner{Name: caller.Tenant, Since: caller.Since}
	if g := in.Snap.SharedAnswers(caller.Caller); g != nil {
		owner, c.record.Shared = g.Owner, g.Name
	}
	return responsecache.Partition{Owner: owner, Pool: res.Pool.Name, Model: res.ModelName, Path: in.WorkerPath,
		Extras: cacheExtras(in)}
}

// cacheExtras returns the query of a request, and its headers for the API of a model. Workers get both.
func cacheExtras(in *intake.Inbound) string {
	var lines []string
	for name, values := range in.HTTP.Header {
		if isAPIHeader(name) {
			lines = append(lines, name+":"+strings.Join(values, ","))
		}
	}
	slices.Sort(lines)
	if q := workerQuery(in); q != "" {
		lines = append(lines, "?"+q)
	}
	return strings.Join(lines, "\n")
}

type cacheControl struct {
	maxAge  time.Duration // greatest age of a kept answer; 0: none may be used
	noStore bool          // the answer must not be kept
}

// anyAge is the maxAge of a request without one.
const anyAge = time.Duration(math.MaxInt64)

// readCacheControl reads the Cache-Control of a request. An age that is no number permits no kept answer.
func readCacheControl(h http.Header) cacheControl {
	c := cacheControl{maxAge: anyAge}
	for _, line := range h["Cache-Control"] {
		for word := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(word, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "no-cache":
				c.maxAge = 0
			case "no-store":
				c.noStore = true
			case "max-age":
				n, err := strconv.ParseUint(strings.Trim(value, " \t\""), 10, 64)
				if err != nil && !errors.Is(err, strconv.ErrRange) {
					n = 0
				}
				if n <= uint64(anyAge/time.Second) {
					c.maxAge = min(c.maxAge, time.Duration(n)*time.Second)
				}
			}
		}
	}
	return c
}

// usable reports whether a kept answer is young enough: for the request, and for the present ttl.
func (c *cached) usable(entry *responsecache.Entry, ttl time.Duration, now time.Time) bool {
	age := now.Sub(entry.At)
	return age < ttl && age <= c.directives.maxAge
}

// recordAnswer begins to record the answer, to keep it.
func (c *cached) recordAnswer(d openai.Dialect) {
	if !c.directives.noStore {
		c.recorder = answers.NewRecorder(d)
	}
}

// lookUpAnswer looks for a kept answer and sends it.
func (x *exchange) lookUpAnswer(form *answers.Form) bool {
	c := x.cached
	c.generation = c.memory.Generation(c.key.Owner.Name)
	c.record.AtMs = msSince(x.in.Start, time.Now())
	if c.pool.ResponseCache.Exact != nil && x.lookUpExact() {
		c.metrics.Request(telemetry.CacheExactHit)
		c.record.Result = telemetry.CacheExactHit.String()
		x.cacheHeaders("exact-hit", "hit; detail=exact")
		x.replay(form)
		return true
	}
	if c.pool.ResponseCache.Semantic != nil && !form.Sampled && x.lookUpNear(form) {
		c.metrics.Request(telemetry.CacheSemanticHit)
		c.record.Result = telemetry.CacheSemanticHit.String()
		x.cacheHeaders("semantic-hit", "hit; detail=semantic")
		x.replay(form)
		return true
	}
	c.metrics.Request(telemetry.CacheMiss)
	c.record.Result = telemetry.CacheMiss.String()
	x.cacheHeaders("miss", "fwd=miss")
	c.recordAnswer(x.in.Dialect)
	return false
}

// lookUpExact looks for the answer to an equal request.
func (x *exchange) lookUpExact() bool {
	c, start := x.cached, time.Now()
	entry, ok := x.getAnswer(start)
	c.lookedUp(start)
	if !ok || !c.usable(&entry, c.pool.ResponseCache.Exact.TTL, start) {
		return false
	}
	c.setHit(&entry, start)
	return true
}

// lookedUp records the time of a look-up.
func (c *cached) lookedUp(start time.Time) {
	took := time.Since(start)
	c.record.LookUpUs += float64(took.Nanoseconds()) / 1000
	c.metrics.LookUp.Observe(took.Seconds())
}

func (c *cached) setHit(entry *responsecache.Entry, now time.Time) {
	c.hit, c.record.AgeMs = entry, ms(now.Sub(entry.At))
	c.metrics.Saved(entry.Prompt, entry.Output)
}

// cacheHeaders sets the headers that state what the cache did.
func (x *exchange) cacheHeaders(status, detail string) {
	h := setInto(x.answer.header())
	if s := x.cached.record.Similarity; s > 0 {
		h.set("X-Tierway-Cache-Similarity", strconv.FormatFloat(s, 'f', 4, 64))
	}
	h.set("Cache-Status", "tierway; "+detail)
	h.set("X-Tierway-Cache-Status", status)
}

// replay sends the kept answer as a new one.
func (x *exchange) replay(form *answers.Form) {
	c, now := x.cached, time.Now()
	x.observeOverhead(now)
	x.resolution.Pool.Series.Resolved(x.resolution.Rule)
	buf := x.s.buffers.body()
	defer x.s.buffers.putBody(buf)
	answer := answers.Replay{Dialect: x.in.Dialect, Content: c.hit.Content, ID: x.s.newID(), Created: now,
		Usage: x.parsed.Req.IncludeUsage, Metadata: form.Metadata, User: form.User}
	var err error
	if x.parsed.Req.Stream {
		x.dispatch.firstAt = now
		x.answer.sendHead(http.StatusOK, func(h http.Header) {
			set := setInto(h)
			streamHeaders(&set)
			x.decisionHeaders(&set)
		})
		buf.Write(answer.AppendStream(buf.AvailableBuffer()))
		err = x.answer.write(buf.Bytes(), true)
	} else {
		buf.Write(answer.AppendWhole(buf.AvailableBuffer()))
		err = x.answerWhole(http.StatusOK, nil, buf.Bytes())
	}
	x.ending = ending{result: decisions.OK}
	if err != nil {
		x.ending.result, x.answer.abort = decisions.ClientGone, true
	}
}

// keepAnswer keeps the complete answer that the client has received, after a miss. result, d and res are those of the
// request at its end.
func (c *cached) keepAnswer(result decisions.Result, d *dispatch, res *intake.Resolution) {
	if c.recorder == nil && !c.directives.noStore || c.hit != nil {
		return
	}
	c.record.Answer = c.keep(result, d, res)
	c.recorder = nil
	c.metrics.Answer(c.record.Answer)
}

// keep keeps the answer, or returns why it is not kept.
func (c *cached) keep(result decisions.Result, d *dispatch, res *intake.Resolution) string {
	n := len(d.attempts)
	switch {
	case c.directives.noStore:
		return answerNoStore
	case result != decisions.OK || n == 0 || d.attempts[n-1].status != http.StatusOK:
		return answerFailed
	case res.Pool != c.pool || res.ModelName != c.key.Model:
		return answerFallback
	}
	used := d.settlement(c).usage
	content, why := c.recorder.Content(used.Prompt, used.Output)
	if why != "" {
		return string(why)
	}
	entry := responsecache.Entry{Content: content, Prompt: used.Prompt, Output: used.Output, At: time.Now()}
	dropped := false
	if e := c.pool.ResponseCache.Exact; e != nil {
		dropped = !c.putAnswer(entry, e.TTL)
	}
	if c.near != nil {
		dropped = !c.keepNear(entry) || dropped
	}
	if dropped {
		return answerDropped
	}
	return answerKept
}

// recordWhole records a whole answer that the client has received.
func (x *exchange) recordWhole(body []byte) {
	if x.cached != nil && x.cached.recorder != nil {
		_ = x.answer.write(nil, true) // reading it must not delay the client; a failure shows at the end
		x.cached.recorder.AddWhole(body)
	}
}

// recordEvent records an event of a stream. c is nil without a response cache.
func (c *cached) recordEvent(ev openai.Event) {
	if c != nil && c.recorder != nil {
		c.recorder.AddEvent(ev)
	}
}

// hitSettlement returns the usage of a kept answer: the tokens of the answer as its engine counted them, all of the
// prompt as cached.
func (c *cached) hitSettlement() settlement {
	return settlement{usage: openai.Usage{Prompt: c.hit.Prompt, Cached: c.hit.Prompt, Output: c.hit.Output,
		CachedKnown: true}, known: true, sent: true, pool: c.pool, kept: true}
}

// CacheMemory returns the memory of the response cache.
func (px *Proxy) CacheMemory() telemetry.CacheMemory {
	s := px.cache.Stats()
	return telemetry.CacheMemory{Entries: s.Entries, Bytes: s.Bytes, Evictions: s.Evictions}
}
