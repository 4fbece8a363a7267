package engines

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
)

// eventLog stores the events of a background response for its streams, which start and end
// independently. It is safe for concurrent use.
type eventLog struct {
	mu      sync.Mutex // guards the three fields below
	events  []loggedEvent
	over    bool
	changed chan struct{} // closed at the next change
}

type loggedEvent struct {
	name string
	data []byte
}

func (l *eventLog) add(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.change(func() { l.events = append(l.events, loggedEvent{name, data}) })
	return nil
}

func (l *eventLog) change(to func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to()
	close(l.changed)
	l.changed = make(chan struct{})
}

// from returns the events from index n on, and whether the log is complete.
func (l *eventLog) from(n int64) (events []loggedEvent, over bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[min(n, int64(len(l.events))):], l.over, l.changed
}

// follow streams the stored and new events from index n on, until the response ends or the client
// leaves.
func (l *eventLog) follow(ctx context.Context, w http.ResponseWriter, n int64) error {
	out := &sse{w: w}
	if err := out.open(); err != nil {
		return err
	}
	for {
		events, over, changed := l.from(n)
		for _, event := range events {
			if err := out.send(event.name, event.data); err != nil {
				return err
			}
		}
		if n += int64(len(events)); over {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// background stores the response as queued, starts its generation and answers at once. The store
// can cancel the work, and Close waits for it.
func (resp *response) background(ctx context.Context, w http.ResponseWriter, p *plan) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	log := &eventLog{changed: make(chan struct{})}
	resp.emit, resp.cancel = log.add, cancel
	if p.stream {
		resp.log = log
	}
	p.stream, p.account = false, new(Account) // independent streams deliver the tokens
	queued := resp.with("queued")
	resp.object = queued
	if err := resp.announce("queued", "response.created", "response.queued"); err != nil {
		cancel()
		return err
	}
	resp.e.stored.put(resp)
	resp.e.work.Go(func() {
		defer cancel()
		last := resp.with("cancelled")
		if u, err := resp.e.generate(work, p, resp); err == nil {
			last = resp.e.stored.update(resp, resp.finished(u))
		}
		_ = resp.finish(last) // the log accepts all JSON
		log.change(func() { log.over = true })
	})
	if resp.log != nil {
		return log.follow(ctx, w, 0)
	}
	return writeJSON(w, http.StatusOK, queued)
}

// resume serves GET /v1/responses/{id}?stream=true.
func (resp *response) resume(w http.ResponseWriter, r *request) error {
	if resp.log == nil {
		return badRequest("stream", "only a background response that was created with stream=true can be streamed")
	}
	after := int64(-1)
	if text := r.URL.Query().Get("starting_after"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return badRequest("starting_after", "starting_after must be the sequence_number of an event, not %q", text)
		}
		after = int64(n)
	}
	return resp.log.follow(r.Context(), w, after+1)
}
