package openai

import (
	"bytes"
	"strconv"
)

// StageFields are the parts of a body that matter if one engine computes the prompt and another one
// generates the answer.
type StageFields struct {
	// Whole is the field for which one engine must serve the whole request; empty if there is none.
	Whole string
	// Forged is a field that only a gateway may send, because it names another engine; empty if there is none.
	Forged string
	// TokenIDs reports that the client requests token IDs.
	TokenIDs bool
	// OnePrompt reports that a completions request has one prompt as a text.
	OnePrompt bool
	// ThinkingBudget reports that a Messages request has a budget of thinking, which engines require to be below
	// the output limit.
	ThinkingBudget bool
	// Faulty reports that an engine may refuse the request for a field that PrefillMembers replaces or removes.
	Faulty bool
	// MinTokens is min_tokens.
	MinTokens int64
}

// addressedID begins the part of a request ID in which vLLM's P2pNcclConnector reads the engine of the
// other stage.
const addressedID = "___prefill_addr_"

// HasEngineAddress reports whether a request ID names an engine by its address.
func HasEngineAddress(id string) bool { return bytes.Contains([]byte(id), []byte(addressedID)) }

// StageFields reads the fields of a JSON body that matter for two stages. It scans the body.
func (r *Request) StageFields() (f StageFields) {
	if r.place.form {
		return f
	}
	if r.N > 1 {
		f.Whole = FieldN.String()
	}
	for _, m := range r.place.engine {
		if IsTransferField(m.name) && !isNullMember(r.Body[m.from:m.to]) {
			f.Forged = m.name
		}
	}
	var echo, logprobs bool
	output := outputFields{budget: -1}
	c := NewReader(r.Body)
	for c.Enter('{'); c.More('}'); {
		switch name := string(c.Name()); name {
		case "best_of":
			if n, ok := c.readInteger(); ok && n > 1 {
				f.Whole = name
			}
		case "use_beam_search", "prompt_logprobs", "background", "previous_response_id", "conversation":
			// 0 requests the log probabilities of the prompt's own tokens.
			if c.nonEmpty() && (r.Dialect == Responses || name == "use_beam_search" || name == "prompt_logprobs") {
				f.Whole = name
			}
		case "prompt_embeds":
			if c.nonEmpty() && r.Dialect == Completions {
				f.Whole = name
			}
		case "prompt":
			f.OnePrompt = r.Dialect == Completions && c.Next() == '"'
		case "tools":
			if r.Dialect == Responses && runsTools(&c) {
				f.Whole = name
			}
		case "echo":
			echo = c.nonEmpty()
		case "logprobs":
			logprobs = c.nonEmpty()
		case "prompt_token_ids":
			if c.Next() != 'n' {
				f.Forged = name
			}
		case "request_id":
			if HasEngineAddress(textOf(c.Text())) {
				f.Forged = name
			}
		case "return_token_ids":
			f.TokenIDs = c.nonEmpty()
		case "truncate_prompt_tokens": // the engines truncate to what their output limits leave
			if c.nonEmpty() {
				f.Whole = name
			}
		case "truncation":
			if r.Dialect == Responses && string(c.Word()) == "auto" {
				f.Whole = name
			}
		default:
			output.read(r, name, &c)
		}
	}
	f.Faulty, f.MinTokens, f.ThinkingBudget = output.faulty(r.Dialect), output.min, output.budget >= 0
	switch {
	case r.Prompts() > 1:
		f.Whole = FieldPrompt.String()
	case echo && logprobs:
		f.Whole = "echo"
	}
	return f
}

// IsTransferField reports whether a field of EngineFields is part of a hand-over.
func IsTransferField(name string) bool {
	switch name {
	case "kv_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key":
		return true
	}
	return false
}

// Mentions reports whether a text contains the name of a field.
func Mentions(text []byte, field string) bool { return bytes.Contains(text, []byte(field)) }

func isNullMember(member []byte) bool {
	c := NewReader(member)
	c.Key()
	return c.Next() == 'n'
}

// runsTools reports whether the next value lists tools that a server of the Responses API runs itself. Each
// run generates once more from the same request.
func runsTools(c *Reader) (runs bool) {
	if c.Next() != '[' {
		c.Skip()
		return false
	}
	for c.Enter('['); c.More(']'); {
		if c.Next() != '{' {
			continue
		}
		for c.Enter('{'); c.More('}'); {
			if string(c.Name()) == "type" {
				kind := string(c.Word())
				runs = runs || kind != "function" && kind != "custom"
			}
		}
	}
	return runs
}

// Member is a top-level member that an Edit sets, or removes if Value is nil.
type Member struct {
	Name  string
	Value []byte // JSON
}

// remoteDecode are the parameters of the request by which a vLLM engine keeps a prompt for another one.
const remoteDecode = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
	`"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// PrefillMembers returns the changes that make the body a request of which the engine computes only the prompt.
// With keep, a vLLM engine keeps the prompt for another one. With ids, it returns the prompt's token IDs.
func (r *Request) PrefillMembers(f *StageFields, keep, ids bool) []Member {
	one := []byte("1")
	members := make([]Member, 0, 8)
	if keep {
		members = append(members, Member{"kv_transfer_params", []byte(remoteDecode)})
	}
	switch r.Dialect {
	case Responses:
		// The engine of the second stage stores the response.
		members = append(members, Member{FieldMaxOutputTokens.String(), one}, Member{FieldStore.String(), []byte("false")})
	case Chat: // max_completion_tokens precedes max_tokens
		members = append(members, Member{FieldMaxCompletionTokens.String(), one}, Member{FieldMaxTokens.String(), one})
	default:
		members = append(members, Member{FieldMaxTokens.String(), one})
		if r.place.limits[FieldMaxCompletionTokens-FieldMaxTokens] != (outputLimit{}) {
			members = append(members, Member{FieldMaxCompletionTokens.String(), one})
		}
	}
	if f.MinTokens > 1 {
		members = append(members, Member{"min_tokens", one})
	}
	members = append(members, Member{FieldStream.String(), []byte("false")}, Member{FieldStreamOptions.String(), nil})
	if ids {
		members = append(members, Member{"return_token_ids", []byte("true")})
	}
	return members
}

// DecodeMembers returns the changes that make the body a request for an engine that reads the prompt's blocks
// from another one. object is that engine's hand-over object. ids are the prompt's token IDs, from the same answer;
// nil: none.
func (r *Request) DecodeMembers(f *StageFields, object, ids []byte) []Member {
	var members []Member
	if ids != nil && r.Dialect == Completions && f.OnePrompt {
		members = append(members, Member{FieldPrompt.String(), ids})
	}
	if ids != nil && r.Dialect == Chat {
		inside := bytes.IndexByte(object, '{') + 1
		extended := make([]byte, 0, len(object)+len(ids)+len(`"prompt_token_ids":,`))
		extended = append(append(append(extended, object[:inside]...), `"prompt_token_ids":`...), ids...)
		object = append(append(extended, ','), object[inside:]...) // an object has members: see ReadPrefill
	}
	return append(members, Member{"kv_transfer_params", object})
}

// AbandonMembers returns the further changes of a request whose client has left: the engine generates one
// token, so that it reads the blocks and releases them.
func (r *Request) AbandonMembers(f *StageFields) []Member {
	members := r.PrefillMembers(f, false, false)
	for i := range members {
		if members[i].Name == FieldStream.String() {
			members[i].Value = []byte("true")
		}
	}
	return members
}

// BootstrapMembers returns the members by which the two engines of SGLang find each other.
func BootstrapMembers(host string, port int, room uint64) []Member {
	return []Member{
		{"bootstrap_host", appendJSONText(nil, host)},
		{"bootstrap_port", strconv.AppendInt(nil, int64(port), 10)},
		{"bootstrap_room", strconv.AppendUint(nil, room, 10)},
	}
}

// sets reports whether the edit sets or removes a member.
func (e *Edit) sets(name string) bool {
	for i := range e.Set {
		if e.Set[i].Name == name {
			return true
		}
	}
	return false
}

// memberChanges appends the changes of Edit.Set, and returns the members that it removes. A client's own
// member with the name of EngineFields is removed in any case.
func (r *Request) memberChanges(cuts []change, e Edit) (_ []change, removed []engineMember) {
	found := make([]bool, len(e.Set))
	c := NewReader(r.Body)
	for c.Enter('{'); c.More('}'); {
		from := c.i
		name := c.Name()
		for i := range e.Set {
			if string(name) != e.Set[i].Name || engineField(name) != "" {
				continue
			}
			found[i] = true
			c.Next()
			value := c.i
			c.Skip()
			if e.Set[i].Value == nil {
				removed = append(removed, engineMember{span{from, c.i}, ""})
			} else {
				cuts = append(cuts, change{span: span{value, c.i}, replacement: e.Set[i].Value})
			}
		}
	}
	for i := range e.Set {
		if !found[i] && e.Set[i].Value != nil {
			cuts = append(cuts, insertion(r.place.top, r.place.topEmpty, e.Set[i].Name, e.Set[i].Value))
		}
	}
	return cuts, removed
}

// Prefill is the answer of an engine that has computed only the prompt. Its slices point into the body.
type Prefill struct {
	// Object is the hand-over object exactly as received; nil if it is absent, null or incomplete.
	Object []byte
	// TokenIDs is the list of the prompt's token IDs; nil without one.
	TokenIDs []byte
	// ReadsTokenIDs reports that an engine of this version may accept token IDs inside the object. vLLM's versions
	// that read them also put remote_num_tokens into the object; older ones ignore them.
	ReadsTokenIDs bool
}

// ReadPrefill reads the parts of a prefill answer that the second stage needs.
func ReadPrefill(body []byte) (p Prefill) {
	c := NewReader(body)
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "kv_transfer_params":
			if v := c.Skip(); isComplete(v) {
				p.Object, p.ReadsTokenIDs = v, hasField(v, []byte("remote_num_tokens"))
			}
		case "prompt_token_ids":
			p.setTokenIDs(c.Skip())
		case "choices":
			if c.Next() != '[' {
				c.Skip()
				continue
			}
			for c.Enter('['); c.More(']'); {
				if c.Next() != '{' {
					continue
				}
				for c.Enter('{'); c.More('}'); {
					if string(c.Name()) == "prompt_token_ids" {
						p.setTokenIDs(c.Skip())
					}
				}
			}
		}
	}
	if !c.AtEnd() {
		return Prefill{}
	}
	return p
}

// isComplete reports whether a hand-over object names an engine and blocks. vLLM's decode engines hang or end at one
// that does not. A prefill engine that pushes its blocks need not name them.
func isComplete(object []byte) bool {
	if len(object) == 0 || object[0] != '{' {
		return false
	}
	var engine, host, port, blocks bool
	c := NewReader(object)
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "remote_engine_id":
			engine = c.nonEmpty()
		case "remote_host":
			host = c.nonEmpty()
		case "remote_port":
			port = c.nonEmpty()
		case "remote_block_ids":
			v := c.Skip()
			blocks = blocks || len(v) > 0 && v[0] == '[' && len(bytes.Trim(v, "[], \t\r\n")) > 0
		case "transfer_mode":
			blocks = blocks || string(c.Word()) == "push"
		}
	}
	return engine && host && port && blocks
}

// setTokenIDs sets the token IDs if the value is a list with elements.
func (p *Prefill) setTokenIDs(v []byte) {
	if len(v) > 0 && v[0] == '[' && HasContent(v) {
		p.TokenIDs = v
	}
}
