package engines

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// sink takes an answer as it is made. Its errors end the request.
type sink interface {
	begin(u Tokens) error                   // the prompts are read; output is still 0
	token(choice, step int, p string) error // the next token of a choice, the step-th of its answer
	end(choice int, finish string) error    // that choice is complete
}

// nowhere is the sink of answers that are written whole.
type nowhere struct{}

func (nowhere) begin(Tokens) error           { return nil }
func (nowhere) token(int, int, string) error { return nil }
func (nowhere) end(int, string) error        { return nil }

// reply is an answer in the words of its dialect.
type reply interface {
	open() error // begins a stream, before the engine has a slot
	sink
	last(u Tokens) error // ends a stream
	whole(u Tokens) any  // the answer in one body: JSON, or a text
}

// write works on a plan and answers with a stream, or with one body.
func (e *Engine) write(ctx context.Context, w http.ResponseWriter, p *plan, to reply) error {
	if p.stream {
		if err := to.open(); err != nil {
			return err
		}
		u, err := e.generate(ctx, p, to)
		if err != nil {
			return err
		}
		return to.last(u)
	}
	u, err := e.generate(ctx, p, nowhere{})
	if err != nil {
		return err
	}
	body := to.whole(u)
	if text, ok := body.(string); ok {
		return writeBytes(w, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	}
	return writeJSON(w, http.StatusOK, body)
}

// generate works on a plan: waits for a slot, reads the prompts, makes the tokens,
// and gives everything back however it ends. The account counts what was made until
// then.
func (e *Engine) generate(ctx context.Context, p *plan, to sink) (Tokens, error) {
	told := p.account
	told.Asked, told.stream = int64(p.promptTokens()), p.stream
	if err := e.slots.enter(ctx, p.priority); err != nil {
		return Tokens{}, err
	}
	defer e.slots.leave()
	e.inUse.Add(told.Asked)
	defer func() { e.inUse.Add(-told.Asked - told.Output) }()

	if err := e.readPrompts(ctx, p); err != nil {
		return Tokens{}, err
	}
	defer e.decoding.Add(-1)
	told.begun = true
	if err := to.begin(told.Tokens); err != nil {
		return Tokens{}, err
	}
	if err := e.decode(ctx, p, to); err != nil {
		return Tokens{}, err
	}
	e.keepOutputs(p)
	return told.Tokens, nil
}

// readPrompts takes the engine's one prefill turn. The cache is looked at inside
// the turn: of two equal prompts the second finds what the first computed. A request
// counts as decoding before it gives the turn on, so that the next one's time does
// not depend on who runs first.
func (e *Engine) readPrompts(ctx context.Context, p *plan) error {
	if err := e.prefill.enter(ctx, p.priority); err != nil {
		return err
	}
	defer e.prefill.leave()
	for _, ids := range p.prompts {
		cached := e.cache.match(ids)
		if err := pause(ctx, e.prefillTime(len(ids)-cached)); err != nil {
			return err
		}
		e.cache.add(ids)
		e.computed.Add(int64(len(ids)))
		p.account.Prompt += int64(len(ids))
		p.account.Cached += int64(cached)
	}
	e.decoding.Add(1)
	return nil
}

// decode makes one token of every choice a step. The first comes out of the
// prefill, each later one takes a token's time.
func (e *Engine) decode(ctx context.Context, p *plan, to sink) error {
	for step, left := 0, len(p.answers); left > 0; step++ {
		var wait time.Duration
		if step > 0 {
			wait = e.tokenTime()
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
			if step < len(a.pieces) {
				if err := to.token(i, step, a.pieces[step]); err != nil {
					return err
				}
				p.account.Output++
				e.inUse.Add(1)
				e.generated.Add(1)
			}
			if step == max(len(a.pieces)-1, 0) {
				if err := to.end(i, a.finish); err != nil {
					return err
				}
				left--
			}
		}
	}
	return nil
}

// keepOutputs enters answers into the cache behind their prompts: the next turn of
// a chat begins with both.
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
			e.cache.add(ids)
		}
	}
}
