package sim

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"tierway/routing"
)

// Handover lets engines compute prompts for others, as far as their Stages allow. It needs a policy of the gateway, and
// all requests must pass a gateway.
type Handover struct {
	Policy    routing.Config // of the prefill stage
	Threshold int64          // as in routing.Handover
	// BothAtOnce sends a request to both engines at once, as SGLang's need it. Otherwise the decode engine gets it when
	// its prompt is computed.
	BothAtOnce bool
	Rate       float64 // tokens of a prompt that are transferred per second; 0: TransferRate
}

// TransferRate is the default of Handover.Rate: 300 KB a token at 60 GB/s.
const TransferRate = 200_000

// checkHandover returns an error that names what the hand-over of a config cannot work with.
func (c *Config) checkHandover() error {
	switch {
	case c.Handover == nil:
		return nil
	case c.NewPolicy != nil:
		return errors.New("NewPolicy: a policy that reads the simulation state has no hand-over: remove NewPolicy or " +
			"Handover")
	case c.DirectShare > 0:
		return fmt.Errorf("DirectShare %v: requests past the gateways have no stages: remove DirectShare or Handover",
			c.DirectShare)
	}
	for i := range c.Engines {
		if c.Engines[i].Stages.Answer() {
			return nil
		}
	}
	return errors.New("no engine generates answers: give one of them the stage whole or decode")
}

// usePolicy sets the hand-over of a gateway's pool.
func (h *Handover) usePolicy(p *routing.Pool) error {
	if h == nil {
		return nil
	}
	policy, err := routing.New(h.Policy)
	if err != nil {
		return fmt.Errorf("the policy of the prefill stage: %w", err)
	}
	p.SetHandover(&routing.Handover{Policy: policy, Threshold: h.Threshold})
	return nil
}

// transferTime returns the time to transfer what the engine lacks of a prompt.
func (e *engineState) transferTime(r *Request) time.Duration {
	missing := r.PromptTokens - e.hitTokens(r, e.cache.hits(r.promptNumbers()))
	return time.Duration(float64(missing) / cmp.Or(e.simulation.config.Handover.Rate, TransferRate) * float64(time.Second))
}

// computePrompt makes the prefill engine of a request compute its prompt, and gives the decode engine its job j when
// the prompt is there. The bookings end as in the gateway.
func (w *Simulation) computePrompt(f *inflight, j *job) {
	rec, lease, both := f.record, f.lease.Prefill(), w.config.Handover.BothAtOnce
	from, e := w.byID[lease.Worker().ID()], w.byID[rec.Worker]
	rec.Prefill = from.Name
	from.enter()
	request := rec.Request
	request.Chain, request.numbers, request.OutputTokens = request.Prompt(), request.promptNumbers(), 0
	p := &job{request: &request}
	f.releasePrefill = func() {
		from.inside--
		result := routing.Result{At: w.time(w.now), Text: true, OutputTokens: 1}
		if !both || !f.route.Stream { // nothing reads the usage of an SGLang stream
			result.PromptTokens, result.CachedTokens = request.PromptTokens, w.reported(p)
		}
		lease.Release(result)
		f.releasePrefill = nil
	}
	p.onFirstToken = func() {
		rec.Started, rec.Computed, rec.Cached = p.startedAt, w.now, p.cached
		j.computed = true
		if !both {
			lease.Answered(w.time(w.now), nil)
			f.lease.Begin(w.time(w.now))
			if !f.route.Stream { // nothing shows when the decode engine has read the prompt
				f.releasePrefill()
			}
		}
		w.After(e.transferTime(&rec.Request), func() {
			if both {
				lease.Answered(w.time(w.now), nil)
			}
			e.accept(j)
		})
	}
	p.onEnd = func() {}
	if both {
		f.lease.Begin(w.time(w.now))
	}
	from.accept(p)
}
