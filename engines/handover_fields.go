package engines

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"strconv"
)

// handoverFields are the fields of a request that concern a hand-over of vLLM, in any dialect.
type handoverFields struct {
	Params         *transferParams `json:"kv_transfer_params"`
	PromptLogprobs *int            `json:"prompt_logprobs"`
	Echo           bool            `json:"echo"`
	Logprobs       any             `json:"logprobs"`

	Stream        bool           `json:"stream"`
	StreamOptions map[string]any `json:"stream_options"`
	MinTokens     int            `json:"min_tokens"`
	MaxTokens     *int           `json:"max_tokens"`
	MaxCompletion *int           `json:"max_completion_tokens"`
	Thinking      struct {
		Type   string `json:"type"`
		Budget int    `json:"budget_tokens"`
	} `json:"thinking"`
}

// check rejects fields that contradict each other, as vLLM does.
func (f *handoverFields) check(path string) error {
	maxTokens := cmp.Or(f.MaxCompletion, f.MaxTokens)
	if maxTokens == nil && path == "/v1/completions" {
		maxTokens = new(defaultCompletion)
	}
	switch {
	case path == "/v1/messages" && maxTokens != nil && f.Thinking.Type == "enabled" && f.Thinking.Budget >= *maxTokens &&
		(f.Params == nil || !f.Params.RemoteDecode):
		return badRequest("thinking", "thinking.budget_tokens must be less than max_tokens")
	case len(f.StreamOptions) > 0 && !f.Stream:
		return badRequest("stream_options", "stream_options needs stream")
	case maxTokens != nil && f.MinTokens > *maxTokens:
		return badRequest("min_tokens", "min_tokens %d is above the maximum of %d tokens", f.MinTokens, *maxTokens)
	}
	return nil
}

// roomFields are the fields of a request to an engine of SGLang that serves one stage.
type roomFields struct {
	Host string  `json:"bootstrap_host"`
	Port *uint16 `json:"bootstrap_port"`
	Room *uint64 `json:"bootstrap_room"`
}

// transferParams is the object of NixlConnector.
type transferParams struct {
	RemoteDecode  bool            `json:"do_remote_decode"`
	RemotePrefill bool            `json:"do_remote_prefill"`
	Engine        *string         `json:"remote_engine_id"`
	Request       *string         `json:"remote_request_id"`
	Host          *string         `json:"remote_host"`
	Port          *uint16         `json:"remote_port"`
	Blocks        json.RawMessage `json:"remote_block_ids"`
	PromptTokens  []uint32        `json:"prompt_token_ids"`
}

// requestIDs are the request ids of P2pNcclConnector; immutable.
var requestIDs = regexp.MustCompile(`^___prefill_addr_(.+:\d+)___decode_addr_(.+:\d+)_[0-9a-f]{32}$`)

// readHandover parses the fields of a hand-over. An engine without one ignores them, as vLLM does.
func (e *Engine) readHandover(r *request) (*handover, error) {
	h := &handover{e: e, path: r.URL.Path, id: r.Header.Get("X-Request-Id")}
	switch {
	case e.c.Handover == "" || e.c.Handover == HandoverSGLang && e.c.Role == "":
		return nil, nil
	case e.c.Handover == HandoverSGLang:
		return h, h.readRoom(r.body)
	}
	if err := cmp.Or(decode(r.body, &h.fields), h.fields.check(h.path)); err != nil {
		return nil, err
	}
	switch {
	case e.c.Handover == HandoverNIXL:
		return h, nil
	case e.c.Handover == HandoverP2PNCCL && e.c.Role != "":
		return h, h.readRequestID(r.Header.Get("X-Request-Id"))
	}
	return nil, nil // no connector, or the store that engines share: its requests have no fields
}

// readRequestID finds the transfer of a request to an engine with P2pNcclConnector, which fails for ids of
// any other form.
func (h *handover) readRequestID(id string) error {
	m := requestIDs.FindStringSubmatch(id)
	if m == nil {
		return internalError("the request id %q does not hold the addresses of a prefill and a decode engine", id)
	}
	own := m[1]
	if h.e.c.Role == RoleDecode {
		own = m[2]
	}
	h.key, h.lost = id, own != cmp.Or(h.e.c.KVAddress, own)
	return nil
}

// readRoom finds the transfer of a request to an engine of SGLang.
func (h *handover) readRoom(body []byte) error {
	var f roomFields
	if err := decode(body, &f); err != nil {
		return err
	}
	const bits = 63
	switch {
	case f.Room == nil:
		return badRequest("bootstrap_room", "bootstrap_room is missing: the engine serves one stage of a request")
	case *f.Room >= 1<<bits:
		return badRequest("bootstrap_room", "bootstrap_room %d is larger than %d bits", *f.Room, bits)
	case f.Host == "":
		return badRequest("bootstrap_host", "bootstrap_host is missing: the engine serves one stage of a request")
	}
	port := uint16(8998)
	if f.Port != nil {
		port = *f.Port
	}
	address := net.JoinHostPort(f.Host, strconv.Itoa(int(port)))
	h.key = fmt.Sprintf("room %d", *f.Room)
	h.lost = h.e.c.Role == RolePrefill && address != cmp.Or(h.e.c.KVAddress, address)
	return nil
}
