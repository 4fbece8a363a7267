package engines

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// sink receives an answer while it is generated. Its errors end the request.
type sink interface {
	begin(u Tokens) error                   // the prompts are read; Output is still 0
	token(choice, step int, p string) error // the next token of a choice, at index step of its answer
	end(choice int, finish string) error    // that choice is complete
}

// nowhere is the sink of answers that are written at the end.
type nowhere struct{}

func (nowhere) begin(Tokens) error           { return nil }
func (nowhere) token(int, int, string) error { return nil }
func (nowhere) end(int, string) error        { return nil }

// reply is an answer in its dialect.
type reply interface {
	open() error // begins a stream, before the engine has a slot
	sink
	last(u Tokens) error // ends a stream
	whole(u Tokens) any  // the complete answer: JSON, or a text
}

// write executes a plan and writes a stream or a single body.
func (e *Engine) write(ctx context.Context, w http.ResponseWriter, p *plan, to reply) error {
	if p.stream {
		if err := to.open(); err != nil {
			return err
		}
		u, err := e.generate(ctx, p, to)
		var failed *apiError
		switch {
		case errors.As(err, &failed):
			return cmp.Or(p.handover.fail(w, failed), http.ErrAbortHandler) // the answer is incomplete
		case err != nil:
			return err
		}
		return to.last(u)
	}
	u, err := e.generate(ctx, p, nowhere{})
	if err != nil {
		return err
	}
	body := p.handover.sent(to.whole(u))
	if text, ok := body.(string); ok {
		return writeBytes(w, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	}
	return writeJSON(w, http.StatusOK, body)
}

// generate executes a plan: it waits for a slot, reads the prompts, generates the tokens, and
// releases everything in any case. The account counts the tokens up to the end.
func (e *Engine) generate(ctx context.Context, p *plan, to sink) (Tokens, error) {
	usage := p.account
	usage.Asked, usage.stream = int64(p.promptTokens()), p.stream
	if err := p.handover.admit(p); err != nil {
		return Tokens{}, err
	}
	defer p.handover.end()
	p.accepted = e.accept(p.salt, p.handover.ownPrompts(p))
	defer p.accepted.leave()
	if err := p.handover.load(ctx, p); err != nil {
		return Tokens{}, err
	}
	if err := e.slots.enter(ctx, p.priority); err != nil {
		return Tokens{}, err
	}
	defer e.slots.leave()
	e.inUse.Add(usage.Asked)
	defer func() { e.inUse.Add(-usage.Asked - usage.Output) }()

	if err := e.readPrompts(ctx, p); err != nil {
		return Tokens{}, err
	}
	defer e.decoding.Add(-1)
	if err := p.handover.offer(ctx, p); err != nil {
		return Tokens{}, err
	}
	usage.begun = true
	if err := to.begin(usage.Tokens); err != nil {
		return Tokens{}, err
	}
	if err := e.decode(ctx, p, to); err != nil {
		return Tokens{}, err
	}
	e.keepOutputs(p)
	p.handover.keep(p)
	return usage.Tokens, nil
}

// readPrompts takes the engine's only prefill turn. It checks the cache within the turn, so that
// the second of two equal prompts finds the blocks of the first. A request counts as decoding
// before it releases the turn, so that the next prefill time does not depend on scheduling.
func (e *Engine) readPrompts(ctx context.Context, p *plan) error {
	if err := e.prefill.enter(ctx, p.priority); err != nil {
		return err
	}
	defer e.prefill.leave()
	for _, ids := range p.prompts {
		cached, err := e.fromStore(ctx, p, ids, e.cache.match(p.salt, ids))
		if err != nil {
			return err
		}
		if p.handover.hasPrompt() {
			cached = len(ids) - 1 // the last position is computed again
		}
		if err := e.pausePrefill(ctx, p, e.prefillTime(len(ids)-cached)); err != nil {
			return err
		}
		e.cache.add(p.salt, ids)
		if e.c.Handover == HandoverShared {
			e.c.Peers.store.add(p.salt, ids)
		}
		e.computed.Add(int64(len(ids)))
		p.account.Prompt += int64(len(ids))
		p.account.Cached += int64(cached)
	}
	p.accepted.leave()
	e.decoding.Add(1)
	return nil
}

// pausePrefill takes the time of a prefill.
func (e *Engine) pausePrefill(ctx context.Context, p *plan, d time.Duration) error {
	began := time.Now()
	p.accepted.begin(d)
	if err := pause(ctx, d); err != nil {
		return err
	}
	late := time.Since(began) - d
	e.counts.change(func(c *counters) { c.Prefills++; c.Prefill += d; c.Late += late })
	return nil
}

// decode generates tokens of every choice. The prefill produces the first token; each later one takes
// a token's time. An event has one token, or Interval tokens after the first.
func (e *Engine) decode(ctx context.Context, p *plan, to sink) error {
	for step, left := 0, len(p.answers); left > 0; {
		tokens := e.eventTokens(p, step)
		var wait time.Duration
		if step > 0 {
			wait = time.Duration(tokens) * e.tokenTime()
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		if p.script.HoldAfter > 0 && step == p.script.HoldAfter {
			select {
			case <-p.script.Release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for i, a := range p.answers {
			ended, err := e.writeEvent(p, to, i, step, tokens)
			if err != nil {
				return err
			}
			if ended {
				if err := to.end(i, a.finish); err != nil {
					return err
				}
				left--
			}
		}
		step += tokens
	}
	return nil
}

// eventTokens returns the number of tokens of the next event: at most those that are left.
func (e *Engine) eventTokens(p *plan, step int) int {
	if step == 0 || e.c.Interval == 1 || p.script.HoldAfter > 0 {
		return 1
	}
	longest := 0
	for _, a := range p.answers {
		if a.logprobs || len(a.calls) > 1 { // an event has the probabilities of one token, and belongs to one call
			return 1
		}
		longest = max(longest, len(a.pieces))
	}
	return max(1, min(e.c.Interval, longest-step))
}

// writeEvent writes the next tokens of a choice, if it has some. It reports whether they are its last.
func (e *Engine) writeEvent(p *plan, to sink, i, step, tokens int) (ended bool, err error) {
	pieces := p.answers[i].pieces
	last := max(len(pieces)-1, 0)
	if step < len(pieces) {
		part := pieces[step:min(step+tokens, len(pieces))]
		if err := to.token(i, step, strings.Join(part, "")); err != nil {
			return false, err
		}
		p.account.Output += int64(len(part))
		e.inUse.Add(int64(len(part)))
		e.generated.Add(int64(len(part)))
	}
	return step <= last && last < step+tokens, nil
}

// keepOutputs adds answers to the cache behind their prompts: the next turn of a chat begins with
// both.
func (e *Engine) keepOutputs(p *plan) {
	if e.cache.capacity == 0 || len(p.prompts) == 0 {
		return
	}
	each := len(p.answers) / len(p.prompts)
	for i, prompt := range p.prompts {
		for _, a := range p.answers[i*each : (i+1)*each] {
			ids := slices.Clone(prompt)
			for _, piece := range a.pieces {
				ids = append(ids, tokenID(piece))
			}
			e.cache.add(p.salt, ids)
		}
	}
}
