package openai

import (
	"slices"
	"strings"
)

// EngineFields are request fields that name other hosts or place a request inside an engine:
// cache transfers and data-parallel ranks of vLLM and SGLang, and arguments of vLLM's plugins.
var EngineFields = [...]string{
	"kv_transfer_params", "ec_transfer_params", "vllm_xargs",
	"bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key",
	"data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank",
}

// engineMember is a member of a body, or a part of a form, with a name of EngineFields: from
// the quote before its name to the end of its value, or from its delimiter to the next one.
type engineMember struct {
	span
	name string
}

// engineField returns name if it is one of EngineFields, else "".
func engineField(name []byte) string {
	for _, f := range EngineFields {
		if string(name) == f {
			return f
		}
	}
	return ""
}

// recordEngineField stores the position of a member with a name of EngineFields in any case.
func (p *parser) recordEngineField(name []byte, at span) {
	f := engineField(name)
	if f == "" {
		f = engineField(folded(name))
	}
	if f != "" {
		p.req.place.engine = append(p.req.place.engine, engineMember{at, f})
	}
}

// removals returns the changes that remove the dropped members and the EngineFields that the edit does not
// allow or sets itself, each with one comma. empty reports that no member of the body remains.
func (r *Request) removals(e Edit, dropped []engineMember) (cuts []change, empty bool) {
	stays := false // a member before the current one remains
	last := 0      // end of the previously removed value
	members := r.place.engine
	if len(dropped) > 0 {
		members = append(slices.Clip(members), dropped...)
		slices.SortFunc(members, func(a, b engineMember) int { return a.from - b.from })
	}
	for _, m := range members {
		if slices.Contains(e.AllowFields, m.name) && !e.sets(m.name) {
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
		after := Reader{b: r.Body, i: m.to}
		follows := after.Next() == ','
		before := Reader{b: r.Body, i: last}
		before.Next()
		if stays = stays || r.Body[comma] == ',' && before.i != comma; stays {
			m.from = comma
		} else if follows {
			m.to = after.i + 1
		}
		last, empty = after.i, !stays && !follows
		cuts = append(cuts, change{span: m.span})
	}
	return cuts, empty
}

// engineFormField returns the one of EngineFields that a form part of this name sets, or "". A key
// in brackets after the name, as forms encode objects, makes no difference.
func engineFormField(name string) string {
	name, _, _ = strings.Cut(strings.ReplaceAll(name, `\`, ""), "[")
	return engineField([]byte(strings.ToLower(strings.TrimSpace(name))))
}
