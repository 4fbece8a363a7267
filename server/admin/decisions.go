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

// decisionView is a record as the API shows it: the JSON of the decision with its number and, if
// telemetry.trace_ui is set, the URL of its trace.
type decisionView struct {
	Seq      int64  `json:"seq" doc:"Number of the record; each request gets the next one. Event ids and cursors are record numbers."`
	TraceURL string `json:"trace_url,omitempty"`
	decisions.Decision
}

type decisionPage struct {
	Items []decisionView `json:"items" nullable:"false" doc:"Records without candidates and block chain; GET /admin/decisions/{id} returns these."`
	Next  *string        `json:"next_cursor" doc:"Cursor of the page with older records; null if no older records are kept."`
	Kept  int            `json:"kept" doc:"Number of records in memory, matching or not."`
	Keep  int            `json:"keep" doc:"Maximum number of records in memory (decisions.keep); fewer if they exceed 256 MiB."`
}

const (
	listMost  = 1000 // largest page
	listUsual = 100  // default page size: a screen or two
	// maxExports is the largest number of concurrent exports. Each may keep records in memory that
	// the log has already dropped, at most 256 MiB.
	maxExports = 2
	// exportPatience is the time limit of an export: 100,000 records, about 500 MB, at 1 MB/s.
	exportPatience = 10 * time.Minute
	maxStreams     = 32               // concurrent streams of decisions: a team with one or two tabs each
	streamStall    = 10 * time.Second // a connection that accepts no data for this time is closed
	eventStream    = "text/event-stream"
)

type decisionAPI struct {
	*gateway
	guard   *guard
	streams atomic.Int32 // open streams of GET /admin/decisions/stream
	exports atomic.Int32 // running exports
}

func (a *decisionAPI) listDecisions(_ context.Context, in *struct {
	Accept string `header:"Accept"`
	decisions.Filter
	Cursor int64 `query:"cursor" minimum:"1" doc:"next_cursor of the previous page, or the seq of a record: only older records."`
	Limit  int   `query:"limit" minimum:"1" maximum:"100000" doc:"Number of newest records, at most 1,000 for a page. Absent: 100 for a page, all for an export."`
}) (*written, error) {
	if err := checkFilter("query.until", &in.Filter); err != nil {
		return nil, err
	}
	if prefers(in.Accept, ndjson) {
		err := reservePlace(&a.exports, maxExports, "exports of decisions", "Try again when one is complete.")
		if err != nil {
			return nil, err
		}
		return &written{Body: func(c huma.Context) {
			defer a.exports.Add(-1)
			found, _ := a.options.Decisions.Page(in.Cursor, in.Limit, in.Matches)
			exportLines(c, "decisions.jsonl", time.Now().Add(exportPatience), func(yield func(any, error) bool) {
				for i := len(found) - 1; i >= 0; i-- { // the oldest first
					yield(found[i].Decision, nil)
					found[i].Decision = nil // the log may have dropped it by now
				}
			})
		}}, nil
	}
	if in.Limit > listMost {
		return nil, invalid("query.limit", "expected number <= "+strconv.Itoa(listMost)+"; for more, export with Accept: "+
			ndjson, in.Limit)
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
		return nil, huma.Error404NotFound("There is no record of a request with this id. The gateway keeps the last " +
			"records in memory (decisions.keep); older ones are in decisions.file, if that is set.")
	}
	return &reply[decisionView]{Body: a.decisionView(n)}, nil
}

func (a *decisionAPI) decisionView(e decisions.Entry) decisionView {
	return decisionView{Seq: e.Seq, TraceURL: a.control.Snapshot().File.Telemetry.TraceURL(e.Decision.TraceID),
		Decision: *e.Decision}
}

// decisionRow returns the record without candidates and blocks, which are long.
func (a *decisionAPI) decisionRow(e decisions.Entry) decisionView {
	v := a.decisionView(e)
	v.Features.Chain = nil
	v.Attempts = slices.Clone(v.Attempts)
	for i := range v.Attempts {
		v.Attempts[i].Choice = withoutCandidates(v.Attempts[i].Choice)
		if h := v.Attempts[i].Handover; h != nil {
			short := *h
			short.Prefills = slices.Clone(h.Prefills)
			for j := range short.Prefills {
				short.Prefills[j].Choice = withoutCandidates(short.Prefills[j].Choice)
			}
			v.Attempts[i].Handover = &short
		}
	}
	v.Refused = withoutCandidates(v.Refused)
	return v
}

// withoutCandidates returns a choice without its candidates.
func withoutCandidates(c *routing.Choice) *routing.Choice {
	if c == nil {
		return nil
	}
	s := *c
	s.Candidates = []routing.Candidate{}
	if s.Handover != nil {
		h := *s.Handover
		h.Prefill, s.Handover = withoutCandidates(h.Prefill), &h
	}
	return &s
}

// reservePlace adds one to n. If n is already maxPlaces, it returns the answer to the client instead.
func reservePlace(n *atomic.Int32, maxPlaces int32, what, wayOut string) error {
	if n.Add(1) <= maxPlaces {
		return nil
	}
	n.Add(-1)
	full := fmt.Sprintf("The maximum of %d %s is reached. %s", maxPlaces, what, wayOut)
	return huma.ErrorWithHeaders(huma.Error429TooManyRequests(full), http.Header{"Retry-After": {"15"}})
}

// checkFilter returns an error if the end of the period is not after its beginning. until is the
// name of the parameter that sets the end.
func checkFilter(until string, f *decisions.Filter) error {
	if !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return invalid(until, "until must be after since", f.Until.Format(time.RFC3339Nano))
	}
	return nil
}

func streams(_ huma.Registry, op *huma.Operation) {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Server-sent events. decision: data is the record as in the list. gap: {\"missed\":n}, the number of " +
			"records that were dropped before they could be sent. dropped: {\"dropped\":n}, the number of matching records " +
			"that were omitted because at most 50 per second are sent. The id of each event is the seq of a record.",
		Content: map[string]*huma.MediaType{eventStream: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
}

func (a *decisionAPI) streamDecisions(ctx context.Context, in *struct {
	decisions.Filter
	LastEvent
}) (*written, error) {
	if err := a.checkStream(&in.Filter); err != nil {
		return nil, err
	}
	err := reservePlace(&a.streams, maxStreams, "streams of decisions", "Close one, or use GET /admin/decisions.")
	if err != nil {
		return nil, err
	}
	return a.stream(ctx, a.follower(&in.Filter), in.position(), func() func() {
		return func() { a.streams.Add(-1) }
	}), nil
}

// LastEvent is the position at which a stream of records resumes.
type LastEvent struct {
	Header string `header:"Last-Event-ID" pattern:"^[0-9]{1,18}$" doc:"Id of the last event that the client received, as browsers send it. Takes precedence over last_event_id."`
	Query  string `query:"last_event_id" pattern:"^[0-9]{1,18}$" doc:"Id of the last event that the client received. 0: start with the oldest record in memory. Absent: send only new records."`
}

// position returns the number of the last record that the client has; -1: only new records are sent.
func (l *LastEvent) position() int64 {
	text := cmp.Or(l.Header, l.Query, "-1")
	after, _ := strconv.ParseInt(text, 10, 64) // the pattern is already checked
	return after
}

// checkStream returns the answer to a stream that cannot begin; nil if it can.
func (a *decisionAPI) checkStream(f *decisions.Filter) error {
	if err := checkFilter("query.until", f); err != nil {
		return err
	}
	if a.options.Draining() {
		// after 5 s, another gateway is up
		return huma.ErrorWithHeaders(huma.Error503ServiceUnavailable("The gateway is shutting down."),
			http.Header{"Retry-After": {"5"}})
	}
	return nil
}

func (a *decisionAPI) follower(f *decisions.Filter) *decisions.Follower {
	return &decisions.Follower{Log: a.options.Decisions, Matches: f.Matches, Event: func(e decisions.Entry) any {
		return a.decisionRow(e)
	}}
}

// stream returns an answer that follows with f until the client disconnects or may no longer follow. It
// calls begin before the first event, and the function that begin returns at the end.
func (a *decisionAPI) stream(ctx context.Context, f *decisions.Follower, after int64, begin func() func()) *written {
	caller, _ := ctx.Value(operatorKey{}).(operator)
	return &written{Body: func(c huma.Context) {
		defer begin()()
		c.SetHeader("Content-Type", eventStream)
		c.SetHeader("X-Accel-Buffering", "no") // otherwise nginx buffers events
		c.SetStatus(http.StatusOK)
		w := humagin.Unwrap(c).Writer
		f.Follow(ctx, w, controller(w), streamStall, after, func() bool {
			return !a.options.Draining() && a.guard.mayContinue(caller, time.Now())
		})
	}}
}
