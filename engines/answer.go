package engines

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"tierway/routing"
)

// wishes are the parameters that the dialects share.
type wishes struct {
	stream     bool
	priority   priority
	n          int
	maxTokens  int    // 0: the answer's natural length
	maxField   string // the field that set maxTokens
	ignoreEOS  bool   // vLLM: the answer continues up to maxTokens
	stop       []string
	jsonObject bool
	schema     json.RawMessage
	tools      []tool
	choice     toolChoice
	seed       uint64
	salt       string
	logprobs   bool // of every token, and of the most likely alternatives
	top        int
}

// The finish reasons, in the words of the chat dialect.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishTools  = "tool_calls"
)

// answer is the text of one choice, split into tokens. With calls the tokens are those of their
// arguments.
type answer struct {
	pieces  []string
	finish  string
	stopped string // the stop sequence that ended the answer
	calls   []toolCall

	logprobs bool // log probabilities are returned; never for a tool call
	top      int
	seed     uint64
}

func (a *answer) text() string { return strings.Join(a.pieces, "") }

// toolCall is one call of an answer.
type toolCall struct {
	tool  string
	first int // index of its first token
}

// arguments returns the arguments of a call.
func (a *answer) arguments(call int) string {
	end := len(a.pieces)
	if call+1 < len(a.calls) {
		end = a.calls[call+1].first
	}
	return strings.Join(a.pieces[a.calls[call].first:end], "")
}

// callAt returns the index of the call to which a token belongs, and whether the token begins the call.
func (a *answer) callAt(step int) (call int, begins bool) {
	for call+1 < len(a.calls) && a.calls[call+1].first <= step {
		call++
	}
	return call, a.calls[call].first == step
}

// plan is everything that is decided before an engine works on a request.
type plan struct {
	prompts [][]uint32
	answers []*answer // n answers per prompt
	stream  bool      // tokens count as written one by one
	script  Script

	priority int64 // place in the queue: lower first
	account  *Account
	salt     string // separates the cache entries of its prompts
	accepted *accepted
	handover *handover // nil: no part in one
}

func (p *plan) promptTokens() int {
	n := 0
	for _, ids := range p.prompts {
		n += len(ids)
	}
	return n
}

// planTurns returns the plan of a request with the answer to its conversation.
func (e *Engine) planTurns(r *request, turns []turn, w *wishes) (*plan, error) {
	p, err := e.newPlan(r, w.stream, w.priority)
	if err != nil {
		return nil, err
	}
	if p.handover, err = e.readHandover(r); err != nil {
		return nil, err
	}
	prompt := render(w.tools, turns)
	if ids := p.handover.prompt(); len(ids) > 0 {
		p.handover.garbage = !slices.Equal(ids, prompt)
		prompt = ids
	} else {
		e.counts.change(func(c *counters) { c.Tokenized++ })
	}
	return p, e.add(p, prompt, turns, w)
}

// add adds the answer to one prompt.
func (e *Engine) add(p *plan, prompt []uint32, turns []turn, w *wishes) error {
	if len(prompt) == 0 {
		return badRequest("prompt", "the prompt is empty")
	}
	if err := e.checkContext(prompt, w); err != nil {
		return err
	}
	maxTokens := e.c.Context - len(prompt)
	called, err := pickTools(w.tools, w.choice, turns)
	if err != nil {
		return err
	}
	bounded := *w
	bounded.maxTokens = min(cmp.Or(w.maxTokens, maxTokens), maxTokens)
	bounded.ignoreEOS = w.ignoreEOS && w.maxTokens > 0
	if p.handover.onlyFirst() {
		bounded.maxTokens = 1
	}
	seed := hashIDs(e.c.Seed^w.seed, prompt)
	for i := range max(w.n, 1) {
		a, err := compose(routing.Draw(seed+uint64(i)), p.script, called, &bounded)
		if err != nil {
			return err
		}
		p.answers = append(p.answers, a)
	}
	p.prompts = append(p.prompts, prompt)
	p.salt = w.salt
	return nil
}

// compose generates one answer.
func compose(seed uint64, script Script, called []*tool, w *wishes) (a *answer, err error) {
	a = &answer{finish: finishStop, seed: seed, top: w.top, logprobs: w.logprobs}
	var text string
	switch {
	case script.Text != "":
		text = script.Text
	case len(called) > 0:
		a.finish, a.logprobs = finishTools, false
		for i, t := range called {
			text, err = arguments(t.params, routing.Draw(seed+uint64(i)))
			if err != nil {
				return nil, err
			}
			a.calls = append(a.calls, toolCall{t.name, len(a.pieces)})
			a.pieces = append(a.pieces, pieces(text)...)
		}
	case len(w.schema) > 0:
		text, err = conform(w.schema, seed)
	case w.jsonObject:
		text = `{"answer": "` + prose(seed, 12) + `", "certain": true}`
	case w.ignoreEOS:
		text = prose(seed, w.maxTokens)
	default:
		text = prose(seed, cmp.Or(script.Tokens, 16+int(seed%48))) // short answers, because a demo shows many of them
	}
	if err != nil {
		return nil, err
	}
	if len(a.calls) == 0 {
		a.pieces = pieces(a.stopAt(text, w))
	}
	if len(a.pieces) > w.maxTokens {
		a.pieces, a.finish, a.stopped = a.pieces[:w.maxTokens], finishLength, ""
		a.calls = slices.DeleteFunc(a.calls, func(c toolCall) bool { return c.first >= w.maxTokens })
	}
	return a, nil
}

// stopAt returns the text before its first stop sequence.
func (a *answer) stopAt(text string, w *wishes) string {
	if w.ignoreEOS {
		return text
	}
	for _, stop := range w.stop {
		if at := strings.Index(text, stop); stop != "" && at >= 0 {
			text, a.stopped = text[:at], stop
		}
	}
	return text
}
