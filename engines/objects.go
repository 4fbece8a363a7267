package engines

import (
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"time"
)

// use is what a decode engine gets for an object.
type use struct {
	again   bool // the blocks were read before
	garbage bool // the blocks are those of another prompt
}

// keep pins a computed prompt and returns its object. client is the X-Request-Id of its request.
func (p *Peers) keep(e *Engine, request, client string, prompt uint64, tokens int) map[string]any {
	p.mu.Lock()
	t := &transfer{key: objectKey(e.process, request), client: client, computed: make(chan struct{}),
		done: make(chan struct{}), first: firstBlock + p.blocks}
	process := e.process
	p.blocks += uint64((tokens + blockTokens - 1) / blockTokens)
	p.mu.Unlock()
	p.pin(t, e, prompt, tokens, e.c.Lease)
	host, port := e.transferAddress()
	return map[string]any{"do_remote_prefill": true, "do_remote_decode": false, "remote_engine_id": process,
		"remote_request_id": request, "remote_block_ids": [][]uint64{t.blockIDs()}, "remote_host": host,
		"remote_port": port, "tp_size": 1, "remote_num_tokens": tokens}
}

// blockIDs returns the ids of the blocks.
func (t *transfer) blockIDs() []uint64 {
	ids := make([]uint64, t.blocks())
	for i := range ids {
		ids[i] = t.first + uint64(i)
	}
	return ids
}

// transferAddress returns where other engines read the engine's blocks: vLLM's default if none is configured.
func (e *Engine) transferAddress() (host string, port uint16) {
	host, text, err := net.SplitHostPort(e.c.KVAddress)
	n, wrong := strconv.ParseUint(text, 10, 16)
	if err != nil || wrong != nil {
		return "localhost", 5600
	}
	return host, uint16(n)
}

// claim takes the blocks of an object for its reader. Without an error and an object the prompt has to be
// computed, except that blocks which were read before are read once more.
func (p *Peers) claim(params *transferParams, prompt uint64) (*transfer, use, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked()
	e := p.engines[*params.Engine]
	if e == nil {
		return nil, use{}, internalError("the handshake failed: there is no engine %q", *params.Engine)
	}
	if host, port := e.transferAddress(); host != *params.Host || port != *params.Port {
		return nil, use{}, internalError("the handshake failed: the engine %q is not at %s:%d", *params.Engine, *params.Host,
			*params.Port)
	}
	key := objectKey(*params.Engine, *params.Request)
	t := p.transfers[key]
	switch {
	case p.read[key], t != nil && t.taken:
		return nil, use{again: true, garbage: true}, nil
	case t == nil || !p.takeLocked(t):
		return nil, use{}, nil
	}
	var ids [][]uint64
	wrong := json.Unmarshal(params.Blocks, &ids) != nil || len(ids) != 1 || !slices.Equal(ids[0], t.blockIDs())
	return t, use{garbage: wrong || t.prompt != prompt}, nil
}

// drop releases the blocks of an object whose reader refuses its request. The object is spent.
func (p *Peers) drop(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transfers[key]; t != nil && p.takeLocked(t) {
		p.unpinLocked(t)
		p.spendLocked(t)
	}
}

// strand leaves blocks to their lease, because their reader was killed. The object is spent. Blocks of SGLang have no
// lease, and end with their prefill request.
func (p *Peers) strand(t *transfer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.taken = false
	switch {
	case t.by == nil:
	case t.by.c.Handover != HandoverSGLang:
		t.expires = time.Now().Add(t.by.c.Lease)
		p.spendLocked(t)
	case t.present[prefillSide] == 0:
		p.unpinLocked(t)
	}
}

func objectKey(engine, request string) string { return engine + "/" + request }
