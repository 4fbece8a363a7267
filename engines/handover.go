package engines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// The hand-overs of Config.Handover, by which a decode engine gets a prompt that a prefill engine has
// computed.
const (
	HandoverNIXL    = "nixl"     // vLLM's NixlConnector: the gateway carries an object from one to the other
	HandoverP2PNCCL = "p2p_nccl" // vLLM's P2pNcclConnector: both requests have the same request id
	HandoverShared  = "shared"   // a store that all engines read and write, such as LMCache
	HandoverSGLang  = "sglang"   // both requests name the same room
)

// The roles of Config.Role. Only engines of p2p_nccl and sglang are started for one.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

// WrongAnswer is the answer of an engine that decoded with another prompt's blocks, or with blocks that were
// overwritten. A real engine returns a wrong text with the status 200.
const WrongAnswer = "WRONG: this answer was decoded with blocks of another prompt."

// transferSetup is the time that every transfer takes, whatever its length.
const transferSetup = time.Millisecond

// firstBlock is the smallest id of a block in an object. It has no exact float64.
const firstBlock = 1<<53 + 1

// handover is a request's part in a hand-over. Its methods accept nil: no part.
type handover struct {
	e      *Engine
	path   string
	id     string // the client's X-Request-Id
	fields handoverFields

	key      string // by which both sides of p2p_nccl and sglang name the transfer
	lost     bool   // the addresses are those of other engines: the sides do not find each other
	transfer *transfer
	joined   bool // the request must leave the transfer
	taken    bool // the request reads the blocks
	garbage  bool // what the request reads is wrong
	loaded   bool // the prompt need not be computed
	answer   any  // the object for the decode engine; nil: none
}

// prompt returns the prompt that the request carries as token ids; nil: none.
func (h *handover) prompt() []uint32 {
	if h == nil || h.fields.Params == nil {
		return nil
	}
	return h.fields.Params.PromptTokens
}

// ownPrompts returns the prompts that the engine computes itself, as far as it knows on admission.
func (h *handover) ownPrompts(p *plan) [][]uint32 {
	if h != nil && (h.taken || h.loaded || h.key != "" && h.side() == decodeSide) {
		return nil
	}
	return p.prompts
}

// onlyFirst reports whether the engine ends every answer after its first token.
func (h *handover) onlyFirst() bool {
	return h != nil && h.e.c.Handover == HandoverSGLang && h.e.c.Role == RolePrefill
}

// side returns the request's side of a meeting.
func (h *handover) side() side {
	if h.e.c.Role == RolePrefill {
		return prefillSide
	}
	return decodeSide
}

// admit is the point from which the engine frees the blocks that the request names, whatever happens. Before
// it a rejection leaves them to their lease. The caller must call end.
func (h *handover) admit(p *plan) error {
	switch {
	case h == nil:
	case h.lost:
	case h.key != "":
		var again bool
		if h.transfer, again = h.e.c.Peers.join(h.key, h.side()); again {
			h.e.counts.change(func(c *counters) { c.KeysReused++ })
		}
		h.joined = true
	case h.fields.Params != nil && h.fields.Params.RemotePrefill:
		return h.claim(p)
	}
	return nil
}

// claim takes the blocks that an object names.
func (h *handover) claim(p *plan) error {
	params, peers := h.fields.Params, h.e.c.Peers
	switch {
	case len(p.prompts) > 1:
		return internalError("%d prompts have one object", len(p.prompts))
	case h.fields.PromptLogprobs != nil, h.fields.Echo && h.fields.Logprobs != nil:
		return internalError("there are no logits of a prompt that another engine has computed")
	case params.Engine == nil || params.Request == nil || params.Host == nil || params.Port == nil:
		h.e.counts.change(func(c *counters) { c.Recomputed++ })
		return nil
	}
	t, use, err := peers.claim(params, p.fingerprint())
	if err != nil {
		return err
	}
	h.transfer, h.taken, h.loaded = t, t != nil, use.again
	h.garbage = h.garbage || use.garbage
	h.e.counts.change(func(c *counters) {
		switch {
		case use.again:
			c.ObjectsReused++
		case t == nil:
			c.Recomputed++
		default:
			c.ObjectsUsed++
		}
	})
	return nil
}

// dropObject frees the blocks of a well-formed request that the engine refuses with err before it claims them, as
// NixlConnector does by a notification. The object is spent. A request that the schema refuses leaves its blocks to
// their lease.
func (e *Engine) dropObject(r *request, err error) {
	var refused *apiError
	if e.c.Handover != HandoverNIXL || !errors.As(err, &refused) || !refused.afterSchema {
		return
	}
	var f handoverFields
	if p := &f; json.Unmarshal(r.body, p) == nil && p.Params != nil && p.Params.RemotePrefill &&
		p.Params.Engine != nil && p.Params.Request != nil {
		e.c.Peers.drop(objectKey(*p.Params.Engine, *p.Params.Request))
	}
}

// load waits for the blocks of the request's prompt and transfers them.
func (h *handover) load(ctx context.Context, p *plan) error {
	switch {
	case h == nil || h.key != "" && h.side() == prefillSide:
		return nil
	case h.lost || h.key != "" && h.e.c.Handover == HandoverSGLang && len(p.answers) > 1:
		<-ctx.Done() // as the real engines do: the blocks never come, or n choices wait for one room
		return ctx.Err()
	}
	h.e.loading.Add(1)
	defer h.e.loading.Add(-1)
	if err := h.await(ctx); err != nil {
		return err
	}
	if h.taken {
		ids := p.prompts[0]
		if err := pause(ctx, h.e.transferTime(len(ids)-h.e.cache.match(p.salt, ids))); err != nil {
			return err
		}
		there, right := h.free(p.fingerprint())
		if !there {
			return internalError("the transfer of the prompt's blocks failed: the prefill engine has left")
		}
		h.loaded, h.garbage = true, h.garbage || !right
	}
	h.mark(p)
	return nil
}

// await waits at a meeting until the prompt has been computed.
func (h *handover) await(ctx context.Context) error {
	for h.joined && !h.taken {
		taken, computed := h.e.c.Peers.take(h.transfer)
		h.taken = taken
		switch {
		case taken:
		case computed == nil:
			h.loaded, h.garbage = true, true
			return nil
		default:
			select {
			case <-computed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// hasPrompt reports whether the prompt has been transferred.
func (h *handover) hasPrompt() bool { return h != nil && h.loaded }

// mark replaces the answers that are decoded with wrong blocks. With nixl, choices after the first read blocks
// that the first one has freed.
func (h *handover) mark(p *plan) {
	for i, a := range p.answers {
		if h.garbage || i > 0 && h.loaded && h.e.c.Handover == HandoverNIXL {
			a.replace()
			h.e.counts.change(func(c *counters) { c.WrongAnswers++ })
		}
	}
}

// replace replaces an answer by the wrong one, in one token. A call has it as its argument.
func (a *answer) replace() {
	a.pieces, a.stopped = []string{WrongAnswer}, ""
	if len(a.calls) > 0 {
		a.calls = a.calls[:1]
		a.pieces[0] = `{"answer":"` + WrongAnswer + `"}`
	}
}

// offer gives the computed prompt to the other side of the meeting. An engine of SGLang waits for its transfer.
func (h *handover) offer(ctx context.Context, p *plan) error {
	if h == nil || h.key == "" || h.side() != prefillSide {
		return nil
	}
	if h.e.c.Handover == HandoverP2PNCCL {
		if h.joined {
			h.e.c.Peers.pin(h.transfer, h.e, p.fingerprint(), p.promptTokens(), h.e.c.Lease)
		}
		return nil
	}
	var done <-chan struct{} // nil: never
	if h.joined {
		done = h.transfer.done
		h.e.c.Peers.pin(h.transfer, h.e, p.fingerprint(), p.promptTokens(), 0)
	}
	h.e.decoding.Add(-1) // the request computes nothing while it waits
	defer h.e.decoding.Add(1)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keep pins the blocks of a request that asked for it, once for each answer: only the object of the first is
// returned.
func (h *handover) keep(p *plan) {
	if h == nil || h.fields.Params == nil || !h.fields.Params.RemoteDecode || p.script.NoObject {
		return
	}
	each := len(p.answers) / len(p.prompts)
	for i := range p.answers {
		ids := p.prompts[i/each]
		object := h.e.c.Peers.keep(h.e, h.e.newID("cmpl-"), h.id, fingerprint(p.salt, ids), len(ids))
		if i == 0 {
			h.answer = object
		}
	}
}

// end frees what the request reads and leaves its meeting. A killed engine frees nothing.
func (h *handover) end() {
	if h == nil {
		return
	}
	if h.taken && h.e.killed.Load() {
		h.taken = false
		h.e.c.Peers.strand(h.transfer)
	}
	h.free(0)
	if h.joined {
		h.joined = false
		h.e.c.Peers.leave(h.transfer, h.side())
	}
}

// free ends the reading of the object, and the meeting with it. It reports whether the blocks were there to
// the end, and whether they were those of the prompt.
func (h *handover) free(prompt uint64) (there, right bool) {
	if h.taken {
		h.taken = false
		there, right = h.e.c.Peers.free(h.transfer, prompt)
		h.end()
	}
	return there, right
}

// fail ends a stream with an error: its headers have been sent.
func (h *handover) fail(w http.ResponseWriter, e *apiError) error {
	out := &sse{w: w}
	switch h.path {
	case "/v1/messages":
		return out.event("error", e.body(h.path))
	case "/v1/responses":
		return out.event("error", map[string]any{"type": "error", "code": strconv.Itoa(e.status), "message": e.message,
			"param": nil, "sequence_number": 2}) // after the two events of open
	}
	return cmp.Or(out.event("", e.body(h.path)), out.send("", []byte("[DONE]")))
}

// sent adds to a complete answer what engines with a hand-over send.
func (h *handover) sent(body any) any {
	fields, ok := body.(map[string]any)
	if h == nil || !ok || h.e.c.Handover != HandoverNIXL {
		return body
	}
	with := maps.Clone(fields) // a stored response must not change
	with["kv_transfer_params"] = h.answer
	return with
}

// transferTime returns the time to transfer the blocks of a number of tokens.
func (e *Engine) transferTime(tokens int) time.Duration {
	return transferSetup + time.Duration(tokens)*e.c.Transfer
}

// fromStore returns how many tokens of a prompt are computed after a look into the store that the engines
// share, of which the engine's own cache has some. It takes the time of the transfer.
func (e *Engine) fromStore(ctx context.Context, p *plan, ids []uint32, own int) (int, error) {
	if e.c.Handover != HandoverShared {
		return own, nil
	}
	stored := e.c.Peers.store.match(p.salt, ids)
	if stored <= own {
		return own, nil
	}
	return stored, pause(ctx, e.transferTime(stored-own))
}

// fingerprint identifies a prompt with its salt.
func fingerprint(salt string, ids []uint32) uint64 {
	return hashIDs(hashIDs(0, appendIDs(nil, salt)), ids)
}

func (p *plan) fingerprint() uint64 { return fingerprint(p.salt, slices.Concat(p.prompts...)) }

// Kill marks the engine as killed: blocks that its requests have not read completely stay with the engines that keep
// them. The caller must then end the requests with Server.Kill, and call Restart.
func (e *Engine) Kill() { e.killed.Store(true) }

// Restart replaces the engine by a new process: another engine id, nothing cached, stored or kept for other
// engines. Counts remain. The caller must have ended the requests in progress, such as by Server.Kill.
func (e *Engine) Restart() {
	e.killed.Store(false)
	e.stored.cancelAll()
	e.work.Wait()
	e.cache.clear()
	if e.c.Handover != "" {
		e.c.Peers.restart(e)
	}
}

// answerID returns the id of an answer. P2pNcclConnector needs the client's request id in it.
func (e *Engine) answerID(r *request, prefix string) string {
	if id := r.Header.Get("X-Request-Id"); id != "" && e.c.Handover == HandoverP2PNCCL {
		return prefix + id
	}
	return e.newID(prefix)
}

func internalError(format string, args ...any) *apiError {
	return &apiError{status: http.StatusInternalServerError, message: fmt.Sprintf(format, args...)}
}
