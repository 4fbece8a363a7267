package proxy

import (
	"bytes"
	"net/http"
	"strings"

	"tierway/decisions"
	"tierway/openai"
	"tierway/pairing"
	"tierway/routing"
	"tierway/server/intake"
	"tierway/telemetry"
	"tierway/tiers"
)

// sampleRequest keeps the request if it is drawn to be repeated. It holds its body from then on.
func (x *exchange) sampleRequest() {
	share := x.in.Snap.File.Learning.Replay.Share
	if x.s.samples == nil || share == 0 || routing.Unit(x.s.rand()) >= share || !x.collectsLabels ||
		!mayBeRepeated(&x.in, &x.caller, &x.parsed, &x.resolution) {
		return
	}
	body := x.parsed.Req.NamedBody()
	if body == nil {
		body = bytes.Clone(x.parsed.Req.Body)
	}
	first, last := x.in.Snap.OuterTiers()
	x.sample = &pairing.Sample{ID: x.in.RequestID, At: x.in.Start, Tenant: x.caller.Tenant, Key: x.caller.Key,
		Tiers: [2]string{first.Name, last.Name}, Path: x.in.WorkerPath, Dialect: x.in.Dialect,
		Header: apiHeaders(x.in.HTTP.Header), Body: body}
	x.s.metrics.SamplesEnded(telemetry.SampleDropped, x.s.samples.Add(x.sample))
}

// mayBeRepeated reports whether a request may run again on the first and the last tier, and whether its answers can be
// compared. A client that selects the tier gives no label to the classifier.
func mayBeRepeated(in *intake.Inbound, c *intake.Caller, p *intake.Parsed, res *intake.Resolution) bool {
	if !res.Classified || in.Kind != intake.Infer || p.AtMostOnce() || p.FollowsUp() || !pairing.Comparable(p.Req) {
		return false
	}
	first, last := in.Snap.OuterTiers()
	return first != last && in.Snap.MayRepeat(c.Caller, first, last)
}

// isAPIHeader reports whether a client selects the version or the features of its API with that header, and workers
// get it.
func isAPIHeader(name string) bool {
	return (strings.HasPrefix(name, "Anthropic-") || strings.HasPrefix(name, "Openai-")) && !withholds(name)
}

// apiHeaders returns a copy of the headers with which a client selects the version and the features of its API.
func apiHeaders(from http.Header) map[string][]string {
	to := map[string][]string{}
	for name, values := range from {
		if isAPIHeader(name) {
			for _, v := range values {
				to[name] = append(to[name], strings.Clone(v))
			}
		}
	}
	return to
}

// endSample makes the sample of the request ready if an engine answered the request, or else removes it.
func (x *exchange) endSample() {
	switch {
	case x.sample == nil:
	case x.ending.result == decisions.OK && len(x.dispatch.attempts) > 0:
		x.s.samples.Answered(x.sample)
	default:
		x.s.samples.Remove(x.sample)
	}
}

// Repeat serves a request as if a client had sent it. The key of its header authenticates it, the limits of that key
// apply, and it has a record. It gives no features and no sample. r must have a route and a whole body. Repeat returns
// when the request has ended, at the latest soon after the context of r.
func (px *Proxy) Repeat(r *http.Request) pairing.Answer {
	in, _ := intake.FindRoute(r)
	w := &kept{discarded: discarded{http.Header{}}}
	x := px.begin(w, in)
	x.repeated = true
	x.run(x.complete)
	a := pairing.Answer{Result: pairing.Failed, Status: w.status, Code: x.ending.code, Body: w.body.Bytes()}
	switch {
	case x.ending.result == decisions.OK && w.status == http.StatusOK:
		a.Result = pairing.Answered
		if n := len(x.dispatch.attempts); n > 0 {
			a.Tier = x.dispatch.attempts[n-1].pool.Name
		}
	case x.ending.result == decisions.Refused:
		a.Result = pairing.Refused
	}
	return a
}

// keepTier pins a repeated request to the tier that it names, or returns an error if it has another one. The client's
// tenant may use the two tiers of a sample, and not each tier to which the operator's tenant could move.
func keepTier(in *intake.Inbound, res *intake.Resolution) error {
	tier := in.HTTP.Header.Get("X-Model-Tier")
	if tier == "" {
		return nil
	}
	if res.Pool.Name != tier {
		return &openai.Error{Code: openai.CodeNoHealthyWorker, Message: "The tier " + openai.Quoted(tier) +
			" cannot take the request, and a repeated request does not move."}
	}
	res.Resolution = tiers.Resolution{Target: res.Target, Tier: res.Tier, Model: res.Model, Rule: res.Rule, Note: res.Note,
		Pinned: true}
	return nil
}
