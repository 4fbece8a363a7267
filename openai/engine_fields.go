package openai

import (
	"slices"
	"strings"
)

// EngineFields are the fields of a request's body that let its sender name other hosts
// or place the request inside an engine: vLLM's and SGLang's transfers of caches and
// data-parallel ranks, and vLLM's arguments to its plugins.
var EngineFields = [...]string{
	"kv_transfer_params", "ec_transfer_params", "vllm_xargs",
	"bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key",
	"data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank",
}

// engineMember is a member of a body, or a part of a form, that names one of
// EngineFields: from the quote before its name to behind its value, or from its delimiter
// to the next one.
type engineMember struct {
	span
	name string
}

// engineField returns the one of EngineFields that a reader may take a name for, in
// whatever case; "" for none.
func engineField(name []byte) string {
	for _, f := range EngineFields {
		if string(name) == f {
			return f
		}
	}
	return ""
}

// noteEngine notes the member of that name if it is one of EngineFields.
func (p *parser) noteEngine(name []byte, at span) {
	f := engineField(name)
	if f == "" {
		f = engineField(folded(name))
	}
	if f != "" {
		p.req.place.engine = append(p.req.place.engine, engineMember{at, f})
	}
}

// removals returns the cuts that remove what the edit does not allow of EngineFields,
// each with one comma. empty says that no member of the body is left.
func (r *Request) removals(e Edit) (cuts []change, empty bool) {
	stays := false // a member in front of the next one
	last := 0      // behind the value that was removed before
	for _, m := range r.place.engine {
		if slices.Contains(e.AllowFields, m.name) {
			continue
		}
		if r.place.form {
			cuts = append(cuts, change{span: m.span})
			continue
		}
		comma := m.from - 1
		for r.Body[comma] != ',' && r.Body[comma] != '{' {
			comma--
		}
		behind := Reader{b: r.Body, i: m.to}
		follows := behind.Next() == ','
		before := Reader{b: r.Body, i: last}
		before.Next()
		if stays = stays || r.Body[comma] == ',' && before.i != comma; stays {
			m.from = comma
		} else if follows {
			m.to = behind.i + 1
		}
		last, empty = behind.i, !stays && !follows
		cuts = append(cuts, change{span: m.span})
	}
	return cuts, empty
}

// engineForm returns the one of EngineFields that a form's part is for: its name, or with
// a key in brackets, as forms write objects.
func engineForm(name string) string {
	name, _, _ = strings.Cut(strings.ReplaceAll(name, `\`, ""), "[")
	return engineField([]byte(strings.ToLower(strings.TrimSpace(name))))
}
