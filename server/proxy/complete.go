package proxy

import (
	"errors"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/server/intake"
)

// complete serves a request that is routed by its model. It calls one stage after the other.
func (x *exchange) complete() (err error) {
	it := x.s.intake
	if x.parsed, err = it.Read(&x.in, &x.caller); err != nil {
		return err
	}
	if chain := x.in.Snap.Hooks; chain != nil && !x.own { // its text has passed them
		if err = x.runHooks(chain); err != nil {
			return err
		}
	}
	x.collectsLabels = !x.own && !x.repeated && !x.caller.IsolateCache && !x.in.Snap.IsRepeater(x.caller.Caller)
	if x.resolution, err = it.Resolve(&x.in, &x.caller, &x.parsed, intake.ResolveOptions{Chats: it.Chats(),
		Evidence: x.s.records.keepsFull(x.trace.Sampled), Explore: x.s.learning != nil && x.collectsLabels}); err != nil {
		x.hooks.blameForModel(x.parsed.Req.Model, err)
		return err
	}
	if x.repeated {
		if err = keepTier(&x.in, &x.resolution); err != nil {
			return err
		}
	}
	if err = x.charge(x.s.control.Stores.Limits); err != nil {
		return err
	}
	it.AddScore(&x.in, &x.resolution)
	if x.answerFromCache() {
		return nil
	}
	x.sampleRequest()
	if x.s.learning != nil && x.collectsLabels && x.resolution.Classified { // while the body is in memory
		x.parsed.Features(&x.in, &x.caller)
	}
	x.gather()
	return x.forward()
}

// completeOptional serves a request that is routed by its model, or that the paths of a pool cover because it is not.
func (x *exchange) completeOptional() error {
	if isRouted(&x.in, &x.caller) {
		return x.complete()
	}
	return x.passUnrouted()
}

// isRouted reports whether a request is routed by its model.
func isRouted(in *intake.Inbound, c *intake.Caller) bool {
	switch in.Kind {
	case intake.Infer:
		return in.Pattern != decisions.RouteOther && !isDeploymentOfPool(in, c)
	case intake.Optional:
		return in.Snap.Serving(in.Dialect, c.Caller) != nil
	}
	return false
}

// isDeploymentOfPool reports whether the path names a deployment that is no model of the gateway, and the paths of a
// pool cover it: a pool of a service with Azure's API.
func isDeploymentOfPool(in *intake.Inbound, c *intake.Caller) bool {
	return in.Deployment != "" && intake.CheckModel(in, c, in.Deployment) != nil && intake.PassingPool(in, c) != nil
}

// charge reserves the estimated usage, and sets the rate-limit headers.
func (x *exchange) charge(limits intake.Limits) (err error) {
	x.admission, x.resolution, err = x.s.intake.Charge(&x.in, &x.caller, &x.parsed, x.resolution, limits)
	if hasRateHeaders(&x.admission) {
		rateHeaders(x.answer.header(), x.admission.Allowance)
	}
	return err
}

// gather collects the facts for the policy, starts the heartbeats of a stream and records the
// gateway's overhead.
func (x *exchange) gather() {
	x.gatherFacts()
	if x.parsed.Req.Stream && x.in.Dialect.Generates() {
		// While the request may get another target, its tier is unknown, and the timer must not read it.
		showsTier := x.in.Snap.File.RoutingHeaders && !mayFallBack(&x.resolution, &x.parsed, x.own) &&
			!x.s.intake.MovesIfUnavailable(&x.in, &x.parsed, &x.resolution)
		x.answer.startBeats(x.resolution.Pool.HeartbeatAfter, func() {
			h := setInto(x.answer.header())
			if streamHeaders(&h); showsTier {
				tierHeaders(&x.resolution, &h)
			}
		})
	}
	x.observeOverhead(time.Now())
}

// observeOverhead records the gateway's own time until now, without the time that hooks and an embedding took.
func (x *exchange) observeOverhead(now time.Time) {
	x.overhead = now.Sub(x.in.ReadAt) - x.hooks.took
	if x.cached != nil {
		x.overhead -= x.cached.embedding
	}
	x.s.metrics.Overhead.Observe(ms(x.overhead) / 1000)
}

// gatherFacts collects the facts for the policy of the request's pool, and counts the request there.
func (x *exchange) gatherFacts() {
	x.facts = x.s.intake.Gather(x.in.HTTP.Context(), &x.caller, &x.parsed, &x.resolution, x.in.Snap.Region(x.in.HTTP),
		true)
	x.resolution.Pool.Series.Resolved(x.resolution.Rule)
}

// passThrough serves a request without a route. A pool that covers its path receives it unchanged, and
// the answer is relayed as raw bytes. Without such a pool the answer is an error. status is 405 if the
// path has a route for other methods.
func (x *exchange) passThrough(status int) (err error) {
	if x.resolution.Pool, err = intake.FindPool(&x.in, &x.caller, status); err != nil {
		return err
	}
	if done, err := x.passStored(); done {
		return err
	}
	if err = x.readPassed(); err != nil {
		return err
	}
	if err = x.charge(x.s.control.Stores.Limits); err != nil {
		return err
	}
	x.gather()
	return x.forward()
}

// passUnrouted serves a request as if its path had no route.
func (x *exchange) passUnrouted() error {
	dialect := x.in.Dialect
	x.in.Dialect = openai.Other
	err := x.passThrough(0)
	if e, ok := errors.AsType[*openai.Error](err); ok && e.Code == openai.CodeUnknownURL && dialect == openai.Pooling {
		return &openai.Error{Code: openai.CodeEndpointNotSupported, Message: "No model that you may use is served on " +
			x.in.HTTP.URL.Path + ". Operator: add pooling to `serves` of the pool whose engines have this endpoint."}
	}
	return err
}

// readPassed reads the request of a path that passes through a pool.
func (x *exchange) readPassed() (err error) {
	if x.parsed, err = x.s.intake.ReadPassed(&x.in, &x.caller, x.resolution.Pool); err == nil {
		x.in.WorkerPath, x.resolution.Rule = x.in.HTTP.URL.EscapedPath(), "path"
		err = intake.CheckHandover(&x.in, &x.parsed, x.resolution.Pool)
	}
	return err
}

// notServed returns the answer to a request for a path that the engines of its pool do not serve.
func notServed(pool, path string) *openai.Error {
	return &openai.Error{Code: openai.CodeEndpointNotSupported,
		Message: "The engines of " + openai.Quoted(pool) + " do not serve " + path +
			". Use a model of another tier or pool: GET /v1/models lists the models."}
}
