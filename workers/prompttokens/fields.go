package prompttokens

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"tierway/openai"
)

// member is a member of a body that shapes the prompt and that /tokenize takes as well.
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
	memberCount
)

// String returns the member's name in a body.
func (m member) String() string {
	return [memberCount]string{"messages", "prompt", "tools", "chat_template", "chat_template_kwargs",
		"add_special_tokens", "add_generation_prompt", "continue_final_message"}[m]
}

// memberOf returns the member of a name, memberCount for all other names.
func memberOf(name []byte) member {
	for m := range memberCount {
		if string(name) == m.String() {
			return m
		}
	}
	return memberCount
}

// rendersOnly reports whether vLLM passes a member to the chat template, or changes the prompt by
// it, and /tokenize has no such member.
func rendersOnly(name []byte) bool {
	switch string(name) {
	case "documents", "functions", "prompt_embeds", "reasoning_effort", "response_format", "suffix",
		"tool_choice", "truncate_prompt_tokens", "truncation_side":
		return true
	}
	return false
}

// fields are the parts of a body that shape its prompt.
type fields struct {
	raw [memberCount][]byte // JSON; nil if absent or null

	renderOnly bool   // a member has an effect that only the render endpoints implement
	variant    uint64 // hash of all parts but messages and prompt, which the chain covers
}

// readFields reads a request's body.
func readFields(r *openai.Request) (f fields) {
	chosen := false // tool_choice is set and not auto
	rd := r.Reader()
	for rd.Enter('{'); rd.More('}'); {
		name := rd.Name()
		m, only := memberOf(name), rendersOnly(name)
		if m == memberCount && !only || rd.Next() == 'n' {
			continue
		}
		seed := xxhash.Sum64(name)
		value := rd.Skip()
		switch {
		case !only:
			f.raw[m] = value
		case string(name) != "tool_choice":
			f.renderOnly = true
		case string(value) == `"auto"`:
			continue
		default:
			chosen = true
		}
		if m != messages && m != text {
			f.variant += mix(seed, xxhash.Sum64(value))
		}
	}
	f.renderOnly = f.renderOnly || chosen && f.raw[tools] != nil
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
