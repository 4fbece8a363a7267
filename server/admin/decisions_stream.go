package admin

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"tierway/decisions"
)

const (
	// maxStreams bounds the operators who follow decisions at once: a team with a
	// tab or two each.
	maxStreams = 32
	// streamStall is how long an operator's connection may take nothing before it is
	// ended.
	streamStall = 10 * time.Second
)

// eventStream is the content type of server-sent events.
const eventStream = "text/event-stream"

// streams documents an answer of server-sent events.
func streams(_ huma.Registry, op *huma.Operation) {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Events named decision (data: the record as in the list), gap ({\"missed\":n}: records that came and went unseen) and dropped ({\"dropped\":n}: matching ones that are left out, for at most 50 a second are told). Each event's id is a record's seq.",
		Content:     map[string]*huma.MediaType{eventStream: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
}

func (a *Plane) streamDecisions(ctx context.Context, in *struct {
	decisions.Filter
	Header string `header:"Last-Event-ID" pattern:"^[0-9]{1,18}$" doc:"The last event that was seen, as browsers send it; before last_event_id."`
	Query  string `query:"last_event_id" pattern:"^[0-9]{1,18}$" doc:"The last event that was seen; 0: all that are kept; absent: only what comes from now on."`
}) (*written, error) {
	if err := checkFilter("query.until", &in.Filter); err != nil {
		return nil, err
	}
	if a.options.Draining() {
		return nil, huma.ErrorWithHeaders(huma.Error503ServiceUnavailable("The gateway is shutting down."), http.Header{"Retry-After": {"5"}}) // another one is up by then
	}
	after := int64(-1)
	for _, text := range []string{in.Query, in.Header} {
		if text != "" {
			after, _ = strconv.ParseInt(text, 10, 64) // its form is checked
		}
	}
	if err := enter(&a.streams, maxStreams, "streams", "Close one, or ask GET /admin/decisions."); err != nil {
		return nil, err
	}
	caller, _ := ctx.Value(operatorKey{}).(operator)
	f := &decisions.Follower{Log: a.options.Decisions, Matches: in.Matches, Event: func(e decisions.Entry) any { return a.decisionRow(e) }}
	return &written{Body: func(c huma.Context) {
		defer a.streams.Add(-1)
		c.SetHeader("Content-Type", eventStream)
		c.SetHeader("X-Accel-Buffering", "no") // nginx would gather events
		c.SetStatus(http.StatusOK)
		w := humagin.Unwrap(c).Writer
		f.Follow(ctx, w, controller(w), streamStall, after, func() bool { return a.mayFollow(caller) })
	}}, nil
}

// mayFollow tells whether an operator's stream may go on: their key is still good,
// and the gateway is not shutting down.
func (a *Plane) mayFollow(o operator) bool {
	admin, good := a.control.Snapshot().Identity.AdminWith(o.Digest, time.Now())
	return good && slices.Contains(anybody, admin.Role) && !a.options.Draining()
}
