package admin

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/danielgtaylor/huma/v2/negotiation"

	"tierway/store"
	"tierway/tenants"
)

const (
	ndjson  = "application/x-ndjson"
	csvType = "text/csv"
)

// exports documents an answer in JSON or, if Accept requests it, in another media type.
func exports[T any](other string) addition {
	return func(registry huma.Registry, op *huma.Operation) {
		op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
			"application/json": {Schema: registry.Schema(reflect.TypeFor[T](), true, "")},
			other:              {Schema: &huma.Schema{Type: huma.TypeString}},
		}}}
	}
}

// written is an answer that its handler writes itself.
type written struct {
	Body func(huma.Context)
}

// inJSON returns an answer with v as its JSON body.
func inJSON(v any) *written {
	return &written{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "application/json")
		c.SetStatus(http.StatusOK)
		huma.DefaultJSONFormat.Marshal(c.BodyWriter(), v) // the client is gone
	}}
}

// prefers reports whether an Accept header prefers the media type other to JSON.
func prefers(accept, other string) bool {
	return negotiation.SelectQValueFast(accept, []string{"application/json", other}) == other
}

type auditView struct {
	store.AuditEntry
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

func showAudit(e store.AuditEntry) auditView {
	return auditView{AuditEntry: e, Before: storedJSON(e.Before), After: storedJSON(e.After)}
}

// storedJSON returns a stored JSON text unchanged, or nil if it is empty.
func storedJSON(text string) json.RawMessage {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if !json.Valid([]byte(text)) { // an entry is shown even if it is malformed
		quoted, _ := json.Marshal(text)
		return quoted
	}
	return json.RawMessage(text)
}

// historyAPI shows the audit log and the usage, which the database records.
type historyAPI struct {
	*gateway
	verifying sync.Mutex // held by a verification, which reads the whole audit log
}

type auditVerification struct {
	Valid    bool  `json:"valid"`
	Entries  int64 `json:"entries" doc:"Number of intact entries: all, or those before broken_at."`
	BrokenAt int64 `json:"broken_at" doc:"Id of the first entry that was changed, inserted or removed. 0: there is none."`
}

func (a *historyAPI) verifyAudit(ctx context.Context, _ *struct{ Body *noBody }) (*reply[auditVerification], error) {
	if !a.verifying.TryLock() {
		return nil, huma.Error409Conflict("Another verification of the audit log is running. Try again in a few seconds.")
	}
	defer a.verifying.Unlock()
	limited, cancel := context.WithTimeout(ctx, replayPatience)
	defer cancel()
	entries, broken, err := a.control.Stores.SQL.VerifyAudit(limited)
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		return nil, huma.Error503ServiceUnavailable("Verifying the audit log takes longer than " + replayPatience.String() +
			": run tierway audit verify, which has no time limit.")
	case err != nil:
		return nil, a.failed("verifying the audit log", err)
	}
	return &reply[auditVerification]{Body: auditVerification{Valid: broken == 0, Entries: entries, BrokenAt: broken}}, nil
}

func (a *historyAPI) listAudit(ctx context.Context, in *struct {
	Accept string    `header:"Accept"`
	Actor  string    `query:"actor" maxLength:"100"`
	Action string    `query:"action" maxLength:"100"`
	Target string    `query:"target" maxLength:"300"`
	Since  time.Time `query:"since" doc:"Only entries after this RFC 3339 time."`
	Cursor int64     `query:"cursor" minimum:"0" doc:"next_cursor of the previous page: only older entries."`
	Limit  int       `query:"limit" minimum:"1" maximum:"200" default:"50"`
}) (*written, error) {
	q := store.AuditQuery{
		Actor:  in.Actor,
		Action: in.Action,
		Target: in.Target,
		Since:  in.Since,
		Before: in.Cursor,
		Limit:  in.Limit,
	}
	entries, err := a.control.Stores.SQL.Audit(ctx, q)
	if err != nil {
		return nil, a.failed("reading the audit log", err)
	}
	if prefers(in.Accept, ndjson) {
		return &written{Body: func(c huma.Context) { a.exportAudit(ctx, c, q, entries) }}, nil
	}
	p := auditPage{Items: mapped(entries, showAudit)}
	if len(entries) == in.Limit {
		p.Next = new(strconv.FormatInt(entries[len(entries)-1].ID, 10))
	}
	return inJSON(p), nil
}

// auditPage is one page of the audit log. It has no total, because entries are not counted.
type auditPage struct {
	Items []auditView `json:"items" nullable:"false"`
	Next  *string     `json:"next_cursor" doc:"Cursor of the page with older entries; null if there are none."`
}

// exportAudit writes all entries that q selects. entries is their first page.
func (a *historyAPI) exportAudit(ctx context.Context, c huma.Context, q store.AuditQuery, entries []store.AuditEntry) {
	ctx = context.WithoutCancel(ctx) // reading the log may take minutes
	q.Limit = 200                    // the most that one query returns
	exportLines(c, "audit.ndjson", time.Time{}, func(yield func(any, error) bool) {
		for len(entries) > 0 {
			for _, e := range entries {
				yield(showAudit(e), nil)
			}
			q.Before = entries[len(entries)-1].ID
			var err error
			if entries, err = a.control.Stores.SQL.Audit(ctx, q); err != nil {
				a.log.Warn("an export of the audit log failed", "cause", err.Error())
				yield(nil, err)
			}
		}
	})
}

// exportBatch is the size in bytes from which on lines are sent.
const exportBatch = 256 << 10

// exportLines writes records as JSON lines. It must be complete by end, unless end is zero. If the
// export fails or its client does not read it, the connection is cut without the last chunk, so that
// the client notices the missing part.
func exportLines(c huma.Context, file string, end time.Time, records iter.Seq2[any, error]) {
	c.SetHeader("Content-Type", ndjson)
	c.SetHeader("Content-Disposition", `attachment; filename="`+file+`"`)
	c.SetStatus(http.StatusOK)
	control := controller(humagin.Unwrap(c).Writer)
	defer control.SetWriteDeadline(time.Time{}) // the connection may serve another request
	var batch bytes.Buffer
	encoder := json.NewEncoder(&batch)
	write := func() {
		by := time.Now().Add(streamStall)
		if !end.IsZero() && end.Before(by) {
			by = end
		}
		control.SetWriteDeadline(by) // only writers of tests have no deadlines
		if _, err := batch.WriteTo(c.BodyWriter()); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	for record, err := range records {
		if err != nil || encoder.Encode(record) != nil {
			panic(http.ErrAbortHandler)
		}
		if batch.Len() >= exportBatch {
			write()
		}
	}
	write()
}

type usageView struct {
	From    string           `json:"from" doc:"First UTC day."`
	To      string           `json:"to" doc:"UTC day after the last one."`
	GroupBy string           `json:"group_by,omitempty"`
	Items   []store.UsageRow `json:"items" nullable:"false"`
	Next    *string          `json:"next_cursor" doc:"Always null: usage has one page."`
	Total   int              `json:"total"`
	Limits  *tenants.Limits  `json:"limits,omitempty" doc:"Limits of the tenant now, to compare the days with. Absent: the tenant was deleted."`
}

// Bounds of a usage query, in days.
const (
	usageDays = 30  // default
	usageMost = 367 // maximum: a leap year and a day
)

func (a *historyAPI) getUsage(ctx context.Context, in *struct {
	TenantPath
	Accept  string `header:"Accept"`
	From    string `query:"from" format:"date" doc:"First UTC day. Absent: 30 days before to."`
	To      string `query:"to" format:"date" doc:"UTC day after the last one. Absent: tomorrow."`
	GroupBy string `query:"group_by" enum:"tier,model,key,outcome" doc:"Split each day by this. Absent: one row per day."`
	Key     string `query:"key" maxLength:"63" doc:"Only usage of the key with this id."`
}) (*written, error) {
	q := store.UsageQuery{Tenant: in.Name, Key: in.Key, GroupBy: in.GroupBy}
	if err := setUsageDays(&q, in.From, in.To, time.Now()); err != nil {
		return nil, err
	}
	rows, err := a.control.Stores.SQL.Usage(ctx, q)
	if err != nil {
		return nil, a.failed("reading the usage", err)
	}
	t, err := a.tenant(ctx, in.Name)
	if err != nil && len(rows) == 0 { // the usage of a deleted tenant stays
		return nil, err
	}
	if prefers(in.Accept, csvType) {
		return &written{Body: func(c huma.Context) {
			c.SetHeader("Content-Type", csvType+"; charset=utf-8")
			c.SetHeader("Content-Disposition", `attachment; filename="usage.csv"`)
			c.SetStatus(http.StatusOK)
			writeUsage(c.BodyWriter(), rows)
		}}, nil
	}
	v := usageView{From: q.From.Format(time.DateOnly), To: q.To.Format(time.DateOnly), GroupBy: q.GroupBy,
		Items: append([]store.UsageRow{}, rows...), Total: len(rows)}
	if err == nil {
		v.Limits = &t.Limits
	}
	return inJSON(v), nil
}

func setUsageDays(q *store.UsageQuery, from, to string, now time.Time) (err error) {
	if q.To, err = parseDay("query.to", to, now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)); err != nil {
		return err
	}
	if q.From, err = parseDay("query.from", from, q.To.AddDate(0, 0, -usageDays)); err != nil {
		return err
	}
	if !q.From.Before(q.To) {
		return invalid("query.from", "from must be before to", from)
	}
	if q.To.Sub(q.From) > usageMost*24*time.Hour {
		return invalid("query.from", "the range exceeds 367 days: send from and to of at most a year", from)
	}
	return nil
}

// parseDay parses a day, which is fallback if text is empty.
func parseDay(location, text string, fallback time.Time) (time.Time, error) {
	if text == "" {
		return fallback, nil
	}
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return at, invalid(location, "expected a day such as 2006-01-31", text)
	}
	return at, nil
}

// writeUsage writes usage as CSV.
func writeUsage(w io.Writer, rows []store.UsageRow) {
	out := csv.NewWriter(w)
	// the client is gone
	out.Write([]string{"day", "group", "requests", "refused", "failed", "client_gone", "estimated",
		"prompt_tokens", "cached_tokens", "output_tokens", "money", "cached_requests", "saved"})
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, r := range rows {
		// the client is gone
		out.Write([]string{r.Day, csvCell(r.Group), number(r.Requests), number(r.Refused), number(r.Failed),
			number(r.Gone), number(r.Estimated), number(r.Prompt), number(r.Cached), number(r.Output), r.Money.String(),
			number(r.CachedRequests), r.Saved.String()})
	}
	out.Flush()
}

// csvCell quotes a name that a spreadsheet would run as a formula. Model names come from clients.
func csvCell(text string) string {
	if strings.IndexAny(text, "=+-@\t\r") == 0 {
		return "'" + text
	}
	return text
}
