package prompttokens

import (
	"bytes"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"tierway/openai"
)

// member is a member of a body that shapes the prompt. /tokenize takes the first ones by the same names.
type member uint8

const (
	messages member = iota
	text
	tools
	template
	arguments
	special
	generation
	continues
	taken // number of the members that /tokenize takes
)

// Members that are translated to those that /tokenize takes.
const (
	effort member = taken + iota
	documents
	system
	thinking
	output
	instructions
	input
	reasoning
	memberCount
)

// String returns the member's name in a body.
func (m member) String() string {
	return [memberCount]string{"messages", "prompt", "tools", "chat_template", "chat_template_kwargs",
		"add_special_tokens", "add_generation_prompt", "continue_final_message", "reasoning_effort", "documents", "system",
		"thinking", "output_config", "instructions", "input", "reasoning"}[m]
}

// inChain reports whether the chain of a prompt covers a member.
func (m member) inChain() bool {
	switch m {
	case messages, text, system, instructions, input:
		return true
	}
	return false
}

// members returns the first member of a dialect's bodies, and the one behind the last; shared reports whether tools and
// arguments of templates are members too.
func members(d openai.Dialect) (from, to member, shared bool) {
	switch d {
	case openai.Messages:
		return system, instructions, true
	case openai.Responses:
		return instructions, memberCount, true
	}
	return messages, system, false
}

// memberOf returns the member of a name in a dialect, memberCount for all other names.
func memberOf(d openai.Dialect, name []byte) member {
	from, to, shared := members(d)
	for m := from; m < to; m++ {
		if string(name) == m.String() {
			return m
		}
	}
	switch {
	case shared && string(name) == tools.String():
		return tools
	case shared && string(name) == arguments.String():
		return arguments
	case d == openai.Messages && string(name) == messages.String():
		return messages
	}
	return memberCount
}

// rendersOnly reports whether vLLM changes the prompt by a member, and no member of /tokenize has its effect.
func rendersOnly(d openai.Dialect, name []byte) bool {
	if d != openai.Chat && d != openai.Completions {
		return false
	}
	switch string(name) {
	case "functions", "prompt_embeds", "suffix", "truncate_prompt_tokens", "truncation_side":
		return true
	}
	return false
}

// continuesStored reports whether the engine adds to the prompt what it has stored.
func continuesStored(d openai.Dialect, name []byte) bool {
	switch string(name) {
	case "previous_response_id", "conversation", "prompt":
		return d == openai.Responses
	}
	return false
}

// fields are the parts of a body that shape its prompt.
type fields struct {
	raw  [memberCount][]byte // JSON; nil if absent or null
	form Form

	renderOnly bool   // a member has an effect that only the render endpoints implement
	stored     bool   // a part of the prompt is stored by the engine
	variant    uint64 // hash of all parts but those that the chain covers
}

func readFields(r *openai.Request) (f fields) {
	f.form = Form(r.Dialect) << formBits
	if r.Dialect == openai.Messages || r.Dialect == openai.Responses {
		f.variant = uint64(r.Dialect)
	}
	var choice []byte
	rd := r.Reader()
	for rd.Enter('{'); rd.More('}'); {
		name := rd.Name()
		m, only, stored := memberOf(r.Dialect, name), rendersOnly(r.Dialect, name), continuesStored(r.Dialect, name)
		set := formOf(name)
		if m == memberCount && !only && !stored && set == 0 || rd.Next() == 'n' {
			continue
		}
		seed := xxhash.Sum64(name)
		value := rd.Skip()
		f.form |= set
		f.renderOnly, f.stored = f.renderOnly || only, f.stored || stored
		switch {
		case m < memberCount:
			f.raw[m] = value
		case set == choiceForm && string(value) == `"auto"`:
			f.form &^= choiceForm
			continue
		case set == choiceForm:
			choice = value
		}
		if m == memberCount || !m.inChain() {
			f.variant += mix(seed, xxhash.Sum64(value))
		}
	}
	switch {
	case f.raw[tools] == nil:
		f.form &^= choiceForm
	case bytes.Contains(choice, []byte(`"none"`)):
		f.form |= noToolForm
	}
	return f
}

// mix combines two hashes. It depends on their order.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return hi ^ lo
}

// divisible reports whether the messages of a chat can be rendered in parts.
func (f *fields) divisible() bool {
	return f.raw[messages] != nil && !f.renderOnly && f.raw[template] == nil && f.raw[special] == nil &&
		f.raw[generation] == nil && f.raw[continues] == nil
}
