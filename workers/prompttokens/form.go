package prompttokens

import (
	"sync"
	"time"

	"tierway/openai"
)

// Form is the form of a request: its dialect, and the members whose effect on the prompt depends on the engine and its
// model.
type Form uint16

const (
	toolForm     Form = 1 << iota // tools are offered
	choiceForm                    // tool_choice is set and not auto
	noToolForm                    // tool_choice is none: an option of vLLM leaves the tools out
	formatForm                    // the format of the answer is set: a few models read it
	effortForm                    // the effort of reasoning is set
	documentForm                  // documents are offered
)

// formBits is the number of the bits below the dialect.
const formBits = 8

// formOf returns the part of the form that a member sets.
func formOf(name []byte) Form {
	switch string(name) {
	case "tools":
		return toolForm
	case "tool_choice":
		return choiceForm
	case "response_format", "output_config":
		return formatForm
	case "reasoning_effort", "reasoning", "thinking":
		return effortForm
	case "documents":
		return documentForm
	}
	return 0
}

const (
	// wrongInARow is the number of prompts of a proven form that differ from the engine's counts, one after the other,
	// before the form is suspended. A single one may have a member that only its client sends.
	wrongInARow = 3
	// suspendedFor is the time for which prompts of a form are not tokenized after that. Another engine or template may
	// take the place of this one.
	suspendedFor = time.Hour
)

// forms has the forms that were compared with the counts of engines. The zero value has none.
type forms struct {
	mu    sync.Mutex
	known map[Form]formState
}

// formState is what comparisons have shown of a form.
type formState struct {
	proven bool // a count was equal
	wrong  int  // counts that differed since then
	until  time.Time
}

// suspended reports whether prompts of a form are not tokenized.
func (s *forms) suspended(f Form) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.known[f].until
	return !until.IsZero() && time.Now().Before(until)
}

// judge records a comparison. It returns true if the form is suspended because of it.
func (s *forms) judge(f Form, equal bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[Form]formState)
	}
	state := s.known[f]
	if equal {
		state.proven, state.wrong = true, 0
	} else {
		state.wrong++
	}
	suspend := state.wrong > 0 && (!state.proven || state.wrong >= wrongInARow) && !time.Now().Before(state.until)
	if suspend {
		state = formState{until: time.Now().Add(suspendedFor)}
	}
	s.known[f] = state
	return suspend
}

// Judge compares the length of a prompt that Lookup returned with the prompt tokens that the engine counted. The first
// difference of a form, or three in a row of one that was right, suspend it for an hour: its prompts are rendered in a
// way that the gateway does not know.
func (s *Source) Judge(f Form, tokens, counted int64) {
	if tokens <= 0 || counted <= 0 {
		return
	}
	if tokens != counted {
		s.counts.miscounted.Add(1)
	}
	if s.forms.judge(f, tokens == counted) {
		s.forget()
		s.c.Log.Warn("the engine counts other tokens than it returns at "+tokenizePath+"; such prompts are routed without "+
			"exact blocks", "dialect", openai.Dialect(f>>formBits).String(), "tools", f&toolForm != 0, "tool_choice",
			f&choiceForm != 0, "format", f&formatForm != 0, "effort", f&effortForm != 0, "tokens", tokens, "counted", counted,
			"for", suspendedFor)
	}
}
