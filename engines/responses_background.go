package engines

import (
	"context"
	"net/http"
	"strconv"
	"sync"
)

// progress is how far a background response is. Streams of it wait for the next
// change; all its methods may be called at once.
type progress struct {
	mu      sync.Mutex // guards the four below
	begun   bool       // the prompt was read
	tokens  int        // of the answer, made until now
	last    map[string]any
	changed chan struct{} // closed at the next change
}

// moment is a progress at one time; last is the final object, nil while there is none.
type moment struct {
	begun   bool
	tokens  int
	last    map[string]any
	changed <-chan struct{}
}

func newProgress() *progress { return &progress{changed: make(chan struct{})} }

func (p *progress) now() moment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return moment{p.begun, p.tokens, p.last, p.changed}
}

func (p *progress) change(to func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to()
	close(p.changed)
	p.changed = make(chan struct{})
}

// backgroundSink is the sink of a background response: it keeps how far it is.
type backgroundSink struct{ run *responseRun }

func (s backgroundSink) begin(usage) error {
	s.run.e.stored.update(withStatus(s.run.resp, "in_progress"))
	s.run.live.change(func() { s.run.live.begun = true })
	return nil
}

func (s backgroundSink) token(int, int, string) error {
	s.run.live.change(func() { s.run.live.tokens++ })
	return nil
}

func (s backgroundSink) end(int, string) error { return nil }

// background stores the response as queued, starts to work on it and answers at once.
// The store can end the work and Close waits for it.
func (run *responseRun) background(ctx context.Context, w http.ResponseWriter, stream bool) error {
	work, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), accountKey{}, nil))
	run.keep, run.live, run.resumable = true, newProgress(), stream
	run.plan.stream = false // its tokens go to streams that come and leave
	queued := withStatus(run.resp, "queued")
	run.store(queued, cancel)
	run.e.work.Go(func() {
		defer cancel()
		last := withStatus(run.resp, "cancelled")
		if u, err := run.e.generate(work, run.plan, backgroundSink{run}); err == nil {
			last = run.e.stored.update(run.complete(u))
		}
		run.plan.prompts = nil // streams that come later read the answer alone
		run.live.change(func() { run.live.last = last })
	})
	if stream {
		return run.follow(ctx, w, -1)
	}
	return writeJSON(w, http.StatusOK, queued)
}

// follow streams a background response from behind the event that is numbered after,
// what was made already and what is being made, until it ends or the client leaves.
func (run *responseRun) follow(ctx context.Context, w http.ResponseWriter, after int64) error {
	out, err := newSSE(w)
	if err != nil {
		return err
	}
	s := &responseStream{out: out, run: run, item: run.itemID(), after: after}
	if err := s.announce("queued", "response.created", "response.queued"); err != nil {
		return err
	}
	for sent := (moment{}); ; {
		at := run.live.now()
		if err := s.catchUp(sent, at); err != nil {
			return err
		}
		if at.last != nil {
			return nil
		}
		select {
		case <-at.changed:
			sent = at
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// catchUp sends the events that lie between two moments. OpenAI's stream has no event
// of its own for a cancelled response: response.failed carries its status.
func (s *responseStream) catchUp(sent, at moment) error {
	if at.begun && !sent.begun {
		if err := s.announce("in_progress", "response.in_progress"); err != nil {
			return err
		}
		if err := s.begin(usage{}); err != nil {
			return err
		}
	}
	for step := sent.tokens; step < at.tokens; step++ {
		if err := s.token(0, step, s.run.plan.answers[0].pieces[step]); err != nil {
			return err
		}
	}
	switch {
	case at.last == nil:
		return nil
	case at.last["status"] == "cancelled":
		return s.event("response.failed", map[string]any{"response": at.last})
	}
	if err := s.end(0, ""); err != nil {
		return err
	}
	return s.finish(at.last)
}

// resume serves GET /v1/responses/{id}?stream=true.
func (e *Engine) resume(w http.ResponseWriter, r *request, s stored) error {
	if s.run == nil {
		return badRequest("stream", "only a background response that was created with stream=true can be streamed")
	}
	after := int64(-1)
	if text := r.URL.Query().Get("starting_after"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return badRequest("starting_after", "starting_after must be the sequence_number of an event, not %q", text)
		}
		after = n
	}
	return s.run.follow(r.Context(), w, after)
}
