package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"tierway/decisions"
	"tierway/routing"
)

// decisionView is a record as the API shows it: the Decision's own JSON with its
// number, and its trace where telemetry.trace_ui says who shows traces.
type decisionView struct {
	Seq      int64  `json:"seq" doc:"Grows by one from request to request; ids of events and cursors are such numbers."`
	TraceURL string `json:"trace_url,omitempty"`
	decisions.Decision
}

type decisionPage struct {
	Items []decisionView `json:"items" nullable:"false" doc:"Without the candidates and the chain of blocks, which the answer for one has."`
	Next  *string        `json:"next_cursor" doc:"Ask for older ones with ?cursor; null: these are the oldest that are kept."`
	Kept  int            `json:"kept" doc:"Records in memory, whether they match or not."`
	Keep  int            `json:"keep" doc:"decisions.keep: so many are kept at most, and fewer where they hold 256 MiB."`
}

const (
	listMost  = 1000 // of a page
	listUsual = 100  // of a page that is not bounded by its query: a screen or two
	// maxExports bounds the exports at once: each may hold records that the log has
	// forgotten meanwhile, 256 MiB of them at most.
	maxExports = 2
	// exportPatience is how long an export may take: one of 100,000 records, some
	// 500 MB, at a megabyte a second.
	exportPatience = 10 * time.Minute
	maxStreams     = 32               // of operators who follow decisions: a team with a tab or two each
	streamStall    = 10 * time.Second // a connection that takes nothing for so long is ended
	eventStream    = "text/event-stream"
)

// decisionAPI lists decisions and streams them.
type decisionAPI struct {
	*gateway
	streams atomic.Int32 // of operators who follow decisions
	exports atomic.Int32 // of decisions that are being read
}

func (a *decisionAPI) listDecisions(_ context.Context, in *struct {
	Accept string `header:"Accept"`
	decisions.Filter
	Cursor int64 `query:"cursor" minimum:"1" doc:"next_cursor of the page before, or a record's seq: only older ones."`
	Limit  int   `query:"limit" minimum:"1" maximum:"100000" doc:"The newest so many, of a page at most 1,000; absent: 100, or all of an export."`
}) (*written, error) {
	if err := checkFilter("query.until", &in.Filter); err != nil {
		return nil, err
	}
	if wants(in.Accept, ndjson) {
		if err := enter(&a.exports, maxExports, "exports", "Try again when one is done."); err != nil {
			return nil, err
		}
		return &written{Body: func(c huma.Context) {
			defer a.exports.Add(-1)
			found, _ := a.options.Decisions.Page(in.Cursor, in.Limit, in.Matches)
			exportLines(c, "decisions.jsonl", time.Now().Add(exportPatience), func(yield func(any, error) bool) {
				for i := len(found) - 1; i >= 0; i-- { // the oldest first
					yield(found[i].Decision, nil)
					found[i].Decision = nil // the log may have forgotten it by now
				}
			})
		}}, nil
	}
	if in.Limit > listMost {
		return nil, invalid("query.limit", "expected number <= "+strconv.Itoa(listMost)+"; an export by Accept: "+ndjson+" may have more", in.Limit)
	}
	found, more := a.options.Decisions.Page(in.Cursor, cmp.Or(in.Limit, listUsual), in.Matches)
	now := a.options.Decisions.Span()
	p := decisionPage{Items: mapped(found, a.decisionRow), Kept: int(now.Next - now.Oldest), Keep: now.Keep}
	if more {
		p.Next = new(strconv.FormatInt(found[len(found)-1].Seq, 10))
	}
	return inJSON(p), nil
}

func (a *decisionAPI) getDecision(_ context.Context, in *struct {
	ID string `path:"id" maxLength:"128"`
}) (*reply[decisionView], error) {
	n, known := a.options.Decisions.Get(in.ID)
	if !known {
		return nil, huma.Error404NotFound("No decision about a request of this id is kept. The gateway keeps the last ones in memory (decisions.keep), and older ones where decisions.file says.")
	}
	return &reply[decisionView]{Body: a.decisionView(n)}, nil
}

func (a *decisionAPI) decisionView(e decisions.Entry) decisionView {
	return decisionView{Seq: e.Seq, TraceURL: a.control.Snapshot().File.Telemetry.TraceURL(e.Decision.TraceID), Decision: *e.Decision}
}

// decisionRow returns the record without what fills screens: candidates and blocks.
func (a *decisionAPI) decisionRow(e decisions.Entry) decisionView {
	v := a.decisionView(e)
	v.Features.Chain = nil
	v.Attempts = slices.Clone(v.Attempts)
	for i := range v.Attempts {
		v.Attempts[i].Choice = short(v.Attempts[i].Choice)
	}
	v.Refused = short(v.Refused)
	return v
}

// short is a choice without its candidates.
func short(c *routing.Choice) *routing.Choice {
	if c == nil {
		return nil
	}
	s := *c
	s.Candidates = []routing.Candidate{}
	return &s
}

// enter counts one more of what is bounded, or returns the answer to one too many.
func enter(n *atomic.Int32, most int32, what, wayOut string) error {
	if n.Add(1) <= most {
		return nil
	}
	n.Add(-1)
	full := fmt.Sprintf("There are %d %s of decisions already, which is as many as there may be. %s", most, what, wayOut)
	return huma.ErrorWithHeaders(huma.Error429TooManyRequests(full), http.Header{"Retry-After": {"15"}})
}

// checkFilter returns what is wrong with a filter beyond the form of its values.
func checkFilter(until string, f *decisions.Filter) error {
	if !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return invalid(until, "has to be after since", f.Until.Format(time.RFC3339Nano))
	}
	return nil
}

func streams(_ huma.Registry, op *huma.Operation) {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Events named decision (data: the record as in the list), gap ({\"missed\":n}: records that came and went unseen) and dropped ({\"dropped\":n}: matching ones that are left out, for at most 50 a second are told). Each event's id is a record's seq.",
		Content:     map[string]*huma.MediaType{eventStream: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
}

func (a *decisionAPI) streamDecisions(ctx context.Context, in *struct {
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
func (a *decisionAPI) mayFollow(o operator) bool {
	admin, good := a.control.Snapshot().Identity.AdminWith(o.Digest, time.Now())
	return good && slices.Contains(anybody, admin.Role) && !a.options.Draining()
}
