package lmcache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	lookupPath = "/lookup"
	// LookupLimit is the longest time that a look-up takes.
	LookupLimit = 200 * time.Millisecond
	// While look-ups fail, the controller is probed after firstProbe, and each time after twice as long.
	firstProbe, lastProbe = time.Second, 30 * time.Second
	// Chunk is the default number of tokens of a chunk: matches are multiples of it. A controller that states no
	// length has found one chunk at least.
	Chunk = 256
	// warnMisses is the number of successive look-ups of repeated prompts without a match after which the log has a
	// warning.
	warnMisses = 100
	// idBytes is the usual length of a token id and its comma.
	idBytes = 7
)

// Match is what an instance has of a prompt, at least.
type Match struct {
	Instance string
	Location string // of the tokens, such as LocalCPUBackend; empty if it is not stated
	Tokens   int64  // leading tokens of the prompt
}

// lookups is the state of a controller's look-ups.
type lookups struct {
	semaphore chan struct{} // one for each that is sent
	due       chan struct{} // has an element if Run must probe
	down      atomic.Bool   // none is sent
	since     atomic.Int64  // of the last change of down, in Unix nanoseconds; 0: none
	cause     atomic.Value  // of the last failure, a string

	matched, missed, failed, timedOut, suspended, busy atomic.Int64

	misses atomic.Int64 // of repeated prompts since the last match
}

// Lookup appends what the instances of the pool have of a prompt to dst. It waits LookupLimit at most. ok is false
// if no answer arrived, or none was requested because an earlier one did not. repeated means that an earlier
// request had the beginning of the prompt.
func (k *Controller) Lookup(ctx context.Context, tokens []uint32, repeated bool,
	dst []Match) (matches []Match, ok bool) {
	l := &k.lookups
	if l.down.Load() {
		l.suspended.Add(1)
		return dst, false
	}
	select {
	case l.semaphore <- struct{}{}:
		defer func() { <-l.semaphore }()
	default:
		l.busy.Add(1)
		return dst, false
	}
	began := time.Now()
	var err error
	if matches, err = k.ask(ctx, tokens, dst); err != nil {
		if ctx.Err() == nil {
			l.countFailure(err)
			k.suspend(err)
		}
		return dst, false
	}
	k.c.OnLookup(time.Since(began))
	if len(matches) > len(dst) {
		l.matched.Add(1)
		l.misses.Store(0)
		return matches, true
	}
	l.missed.Add(1)
	if repeated && l.misses.Add(1) == warnMisses {
		k.c.Log.Warn(fmt.Sprintf("%d look-ups of repeated prompts have found nothing in LMCache: engines and controller "+
			"need the same image and PYTHONHASHSEED, engines a chunk_size of %d, and prompts must be longer than a chunk; routing "+
			"uses the gateway's history", warnMisses, Chunk), "url", k.url)
	}
	return matches, true
}

// Peek is Lookup for a request that is not sent. It counts nothing and suspends no look-up.
func (k *Controller) Peek(ctx context.Context, tokens []uint32, dst []Match) []Match {
	if k.lookups.down.Load() {
		return dst
	}
	matches, err := k.ask(ctx, tokens, dst)
	if err != nil {
		return dst
	}
	return matches
}

func (k *Controller) ask(ctx context.Context, tokens []uint32, dst []Match) (matches []Match, err error) {
	body := append(make([]byte, 0, 16+idBytes*len(tokens)), `{"tokens":[`...)
	for i, t := range tokens {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendUint(body, uint64(t), 10)
	}
	body = append(body, "]}"...)
	text, err := k.call(ctx, min(LookupLimit, k.c.Timeout), http.MethodPost, lookupPath, bytes.NewReader(body))
	if err != nil {
		return dst, err
	}
	matches = dst
	err = k.c.Recover("reading an answer of the LMCache controller", func() (err error) {
		matches, err = k.readLayout(text, dst)
		return err
	})
	return matches, err
}

// place is an instance's part of an answer: where its tokens are, and how many of them there are.
type place struct {
	location string
	tokens   float64
}

// UnmarshalJSON reads an array of both.
func (p *place) UnmarshalJSON(text []byte) error {
	parts := [2]any{&p.location, &p.tokens}
	fields := parts[:]
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	if len(fields) < len(parts) {
		return errors.New("an instance has no location or no number of tokens")
	}
	return nil
}

// mostTokens bounds the number of tokens of a match.
const mostTokens = 1 << 40

// readLayout appends the matches of an answer.
func (k *Controller) readLayout(text []byte, dst []Match) ([]Match, error) {
	var answer struct {
		Layout map[string]*place `json:"layout_info"`
		Old    json.RawMessage   `json:"res"` // an instance, or null
		Event  *string           `json:"event_id"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return dst, fmt.Errorf("reading the answer to a look-up: %w", err)
	}
	if answer.Layout == nil && answer.Event == nil && answer.Old == nil {
		return dst, errors.New("the answer to a look-up has no layout_info")
	}
	if answer.Old != nil && answer.Layout == nil {
		var instance string
		if err := json.Unmarshal(answer.Old, &instance); err != nil {
			return dst, fmt.Errorf("reading the answer to a look-up: %w", err)
		}
		if instance != "" && k.c.Known(instance) {
			dst = append(dst, Match{Instance: instance, Tokens: Chunk})
		}
	}
	for instance, p := range answer.Layout {
		if p != nil && p.tokens >= 1 && k.c.Known(instance) {
			dst = append(dst, Match{Instance: instance, Location: p.location, Tokens: int64(min(mostTokens, p.tokens))})
		}
	}
	return dst, nil
}

func (l *lookups) countFailure(err error) {
	if _, late := errors.AsType[timeoutError](err); late {
		l.timedOut.Add(1)
	} else {
		l.failed.Add(1)
	}
}

// suspend ends the look-ups until a probe succeeds.
func (k *Controller) suspend(err error) {
	l := &k.lookups
	if l.down.Swap(true) {
		return
	}
	l.cause.Store(err.Error())
	l.since.Store(time.Now().UnixNano())
	k.c.Log.Warn("look-ups in the LMCache controller are suspended until it answers a probe; routing uses the gateway's "+
		"history", "url", k.url, "cause", err.Error())
	select {
	case l.due <- struct{}{}:
	default:
	}
}

// runProbes probes the controller while look-ups are suspended, until ctx ends.
func (k *Controller) runProbes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.lookups.due:
		}
		for pause := firstProbe; k.lookups.down.Load(); pause = min(2*pause, lastProbe) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if _, err := k.ask(ctx, []uint32{0}, nil); err == nil {
				k.lookups.since.Store(time.Now().UnixNano())
				k.lookups.down.Store(false)
				k.c.Log.Info("the LMCache controller answers look-ups again", "url", k.url)
			} else if ctx.Err() == nil {
				k.lookups.cause.Store(err.Error())
			}
		}
	}
}
