package repeats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	"tierway/config"
	"tierway/pairing"
	"tierway/server/learning"
	"tierway/telemetry"
)

type pair struct {
	*Repeater
	sample  *pairing.Sample
	answers [2]string
	cause   string // why it has no labels, for the log; without a part of a prompt, an answer or an output
}

// repeat sends the sample to both tiers, has the answers judged and writes the labels.
func (p *pair) repeat(ctx context.Context) telemetry.SampleOutcome {
	body, err := pairing.Unstreamed(p.sample.Body)
	if err != nil {
		return telemetry.SampleFailed // not a body that the gateway has read
	}
	for i, tier := range p.sample.Tiers {
		c, outcome, wanted := p.wanted()
		if !wanted {
			return outcome
		}
		if outcome, ok := p.sendToTier(ctx, c, body, i, tier); !ok {
			return outcome
		}
	}
	c, outcome, wanted := p.wanted()
	if !wanted {
		return outcome
	}
	verdict, err := p.judge(ctx, c)
	if ctx.Err() != nil {
		return telemetry.SampleDropped
	}
	switch {
	case errors.Is(err, errNotJudged):
		return telemetry.SampleNotJudged
	case err != nil:
		p.cause = err.Error()
		return telemetry.SampleJudgeFailed
	}
	if _, outcome, wanted := p.wanted(); !wanted {
		return outcome
	}
	var labels [len(verdict)]learning.Label
	for i, right := range verdict {
		labels[i] = learning.Label{ID: p.sample.ID, Time: time.Now().UTC(), Tenant: p.sample.Tenant, Tier: p.sample.Tiers[i],
			OK: right, Weight: 1, Source: learning.SourceReplay}
	}
	if err := p.Labels.AddLabels(labels[:]...); err != nil { // a single label would be no pair
		p.cause = err.Error()
		return telemetry.SampleDropped
	}
	return telemetry.SampleLabelled
}

// wanted returns the configuration in force, and whether it still permits the sample. The outcome states why not.
func (p *pair) wanted() (c *config.Replay, outcome telemetry.SampleOutcome, wanted bool) {
	snap, now := p.Control.Snapshot(), time.Now()
	switch {
	case !snap.MayKeep(p.sample, now):
		return nil, telemetry.SampleDropped, false
	case p.sample.Expired(now):
		return nil, telemetry.SampleExpired, false
	}
	return &snap.File.Learning.Replay, telemetry.SampleLabelled, true
}

// sendToTier sends the sample to a tier and keeps the text of the answer. ok is false if there is none.
func (p *pair) sendToTier(ctx context.Context, c *config.Replay, body []byte, i int, tier string,
) (_ telemetry.SampleOutcome, ok bool) {
	header := http.Header{"X-Model-Tier": {tier}}
	maps.Copy(header, p.sample.Header)
	a := p.send(ctx, c, p.sample.Path, header, body)
	switch {
	case ctx.Err() != nil:
		return telemetry.SampleDropped, false
	case a.Result == pairing.Refused:
		p.cause = fmt.Sprintf("%s refuses the request: status %d, code %s", tier, a.Status, a.Code)
		return telemetry.SampleRefused, false
	case a.Result == pairing.Failed:
		p.cause = fmt.Sprintf("%s fails: status %d, code %s", tier, a.Status, a.Code)
		return telemetry.SampleFailed, false
	case a.Tier != tier:
		p.cause = tier + " does not answer, and " + a.Tier + " does"
		return telemetry.SampleRefused, false
	}
	if p.answers[i], ok = pairing.Text(p.sample.Dialect, a.Body); !ok {
		p.cause = "the answer of " + tier + " has no text"
	}
	return telemetry.SampleFailed, ok
}

// send sends a request with the key of the operator's tenant, within the time of the configuration. Its class is the
// lowest one, and it is neither answered from the response cache nor kept there: the cache belongs to the operator's
// tenant, and the prompt does not.
func (p *pair) send(ctx context.Context, c *config.Replay, path string, header http.Header, body []byte,
) pairing.Answer {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return pairing.Answer{Result: pairing.Failed}
	}
	maps.Copy(r.Header, header)
	r.Header.Set("Authorization", "Bearer "+c.APIKey)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	r.Header.Set("Cache-Control", "no-cache, no-store")
	r.Header.Set("X-Request-Priority", "batch")
	return p.Send(r)
}
