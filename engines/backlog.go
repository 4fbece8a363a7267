package engines

import (
	"sync"
	"time"
)

// backlog is the prompts that an engine has accepted and not yet read.
type backlog struct {
	mu      sync.Mutex
	blocks  map[uint64]int // how many of these prompts have each block
	waiting int            // tokens to compute, as expected on arrival, of prompts that have not begun
	until   time.Time      // end of the prefill in progress
}

// accepted is a request in the backlog.
type accepted struct {
	b       *backlog
	chains  [][]uint64
	waiting int
	left    bool
}

// ChatTokens returns the prompt of a chat request as its tokens, which are the same on all engines.
func ChatTokens(body []byte) ([]uint32, error) {
	var req chatRequest
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	return render(req.Tools, chatTurns(req.Messages)), nil
}

// TimeToFirst returns the time to the first token of a prompt if it arrived now. It follows from the
// engine's real state: the prompts ahead, what they and this one have in the cache, and the speed at
// the present load. It leaves out waits for a slot.
func (e *Engine) TimeToFirst(prompt []uint32) time.Duration {
	b := &e.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	own := e.expectedLocked(e.cache.chain("", prompt), len(prompt))
	return max(0, time.Until(b.until)) + e.prefillTime(b.waiting+own)
}

// Expect adds a prompt to the backlog that is on its way to the engine. The caller must call the
// returned function when the engine has it.
func (e *Engine) Expect(prompt []uint32) (arrived func()) {
	return e.accept("", [][]uint32{prompt}).leave
}

// expectedLocked returns the tokens to compute of a prompt behind the backlog.
func (e *Engine) expectedLocked(chain []uint64, tokens int) int {
	e.cache.mu.Lock()
	defer e.cache.mu.Unlock()
	n := 0
	for n < len(chain) && (e.cache.blocks[chain[n]] != nil || e.backlog.blocks[chain[n]] > 0) {
		n++
	}
	return tokens - min(n*e.cache.size, (tokens-1)/e.cache.size*e.cache.size)
}

// accept adds prompts to the backlog. leave must be called for the result.
func (e *Engine) accept(salt string, prompts [][]uint32) *accepted {
	b := &e.backlog
	a := &accepted{b: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ids := range prompts {
		chain := e.cache.chain(salt, ids)
		a.waiting += e.expectedLocked(chain, len(ids))
		a.chains = append(a.chains, chain)
		for _, h := range chain {
			b.blocks[h]++
		}
	}
	b.waiting += a.waiting
	return a
}

// begin records a prefill of d that begins now.
func (a *accepted) begin(d time.Duration) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.b.waiting -= a.waiting
	a.waiting = 0
	a.b.until = time.Now().Add(d)
}

// leave removes the request from the backlog, if it is there.
func (a *accepted) leave() {
	b := a.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.left {
		return
	}
	a.left = true
	b.waiting -= a.waiting
	for _, chain := range a.chains {
		for _, h := range chain {
			if b.blocks[h]--; b.blocks[h] == 0 {
				delete(b.blocks, h)
			}
		}
	}
}
