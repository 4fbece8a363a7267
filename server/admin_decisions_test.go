package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/decisions"
	"tierway/routing"
)

// addDecisions adds records to the decision log, as requests do.
func (r *adminRig) addDecisions(all ...*decisions.Decision) {
	for _, d := range all {
		r.recorded().Add(d)
	}
}

// listDecisions returns a page of the list and its request IDs.
func (r *adminRig) listDecisions(query string) (p decisionList, ids []string) {
	r.t.Helper()
	got := r.callAdmin("eyes", http.MethodGet, "/admin/decisions"+query, "")
	if got.status != http.StatusOK {
		r.t.Fatalf("%s: %d: %s", query, got.status, got.body)
	}
	p = decode[decisionList](r.t, got)
	for _, d := range p.Items {
		ids = append(ids, d.RequestID)
	}
	return p, ids
}

// TestDecisionListIsFilteredAndNewestFirst: each page continues with older records. Unknown filter
// values are rejected with the field's name.
func TestDecisionListIsFilteredAndNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		at := func(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0).UTC() }
		r.addDecisions(
			&decisions.Decision{RequestID: "a", Time: at(0), Tenant: "acme", Tier: "small", Result: decisions.OK, Status: 200,
				DurationMs: 10, Rule: "alias", Model: "m1",
				Attempts: []decisions.Attempt{{Worker: "w0", Reason: "random"}, {Worker: "w1", Reason: "prefix_home"}}},
			&decisions.Decision{RequestID: "b", Time: at(1), Tenant: "acme", Result: decisions.Refused, Status: 429,
				Code: "rate_limit_exceeded", Limit: "rpm", Class: "batch"},
			&decisions.Decision{RequestID: "c", Time: at(2), Result: decisions.Refused, Status: 401, Code: "invalid_api_key"},
			&decisions.Decision{RequestID: "d", Time: at(3), Tenant: "umbrella", Tier: "large", Result: decisions.Failed,
				Status: 502, DurationMs: 2000, RequestedModel: "m1"},
		)
		for query, want := range map[string]string{
			"": "dcba", "?limit=2": "dc", "?tenant=acme": "ba", "?outcome=refused": "cb", "?outcome=refused&tenant=acme": "b",
			"?worker=w0": "a", "?worker=w0&reason=prefix_home": "",
			"?reason=prefix_home": "a", "?rule=alias": "a", "?model=m1": "da", "?class=batch": "b", "?code=invalid_api_key": "c",
			"?status=401": "c", "?min_ms=10": "da",
			"?request_id=c": "c", "?q=UMB": "d", "?q=RATE_": "b", "?tier=large": "d",
			"?since=" + at(1).Format(time.RFC3339):                                          "dcb",
			"?since=" + at(1).Format(time.RFC3339) + "&until=" + at(3).Format(time.RFC3339): "cb", "?tenant=unknown": "",
		} {
			p, got := r.listDecisions(query)
			if strings.Join(got, "") != want || p.Kept != 4 || p.Keep != 2000 || (p.Next != nil) != (query == "?limit=2") {
				t.Errorf("%s: %v of %d, next %v, want %s", query, got, p.Kept, p.Next, want)
			}
		}
		p, _ := r.listDecisions("?limit=2")
		if p, got := r.listDecisions("?limit=2&cursor=" + *p.Next); strings.Join(got, "") != "ba" || p.Next != nil {
			t.Errorf("the second page is %v", got)
		}
		for query, field := range map[string]string{"outcome=good": "query.outcome", "class=urgent": "query.class",
			"status=99": "query.status", "status=x": "query.status", "min_ms=-1": "query.min_ms",
			"since=yesterday": "query.since", "until=2020-01-01T00:00:00Z&since=2021-01-01T00:00:00Z": "query.until",
			"limit=0": "query.limit", "limit=1001": "query.limit",
			"cursor=x": "query.cursor", "reason=a%20b": "query.reason", "code=A": "query.code", "wrker=w0": "query.wrker"} {
			for _, path := range []string{"/admin/decisions?", "/admin/decisions/stream?"} {
				if strings.Contains(path, "stream") && (field == "query.limit" || field == "query.cursor") {
					continue
				}
				if got := r.callAdmin("eyes", http.MethodGet, path+query, ""); got.status != http.StatusUnprocessableEntity ||
					!strings.Contains(got.body, `"`+field+`"`) {
					t.Errorf("%s%s: %d %s", path, query, got.status, got.body)
				}
			}
		}
		for _, path := range []string{"/admin/decisions", "/admin/decisions/a", "/admin/decisions/stream"} {
			if got := r.callAdmin("", http.MethodGet, path, ""); got.status != http.StatusUnauthorized {
				t.Errorf("%s without a key: %d", path, got.status)
			}
		}
	})
}

// TestDecisionByIDIsComplete: it has candidates and features, which the list omits. If two records
// share an ID, the newer one is returned.
func TestDecisionByIDIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, adminYAML(memoryDB)+"telemetry: { trace_ui: \"http://jaeger:16686/\" }\n", fakeEngine(),
			fakeEngine()))
		d := wholeDecision()
		d.Attempts[1].Choice = &routing.Choice{Policy: "chwbl", Seen: 2, RunnerUp: "w0",
			Candidates: []routing.Candidate{{Worker: "w0"}, {Worker: "w1", Index: 1, Score: 0.5}}}
		d.Features = decisions.Features{Prefix: 0xfeed, Chain: []routing.Link{{Hash: 0xbeef, End: 100}}, Blocks: 1}
		r.addDecisions(&decisions.Decision{RequestID: "r-1"}, d)
		got := r.callAdmin("eyes", http.MethodGet, "/admin/decisions/r-1", "")
		v := decode[decisionShown](t, got)
		if diff := cmp.Diff(*d, v.Decision, cmp.Comparer(func(a, b routing.Terms) bool {
			return a.IsZero() == b.IsZero()
		})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if v.TraceURL != "http://jaeger:16686/trace/"+d.TraceID ||
			!strings.Contains(got.body, `"chain":["000000000000beef:100"]`) || v.Seq != r.recorded().Span().Next-1 {
			t.Errorf("it is shown as %s", got.body)
		}
		p, _ := r.listDecisions("?limit=1")
		row := p.Items[0]
		if c := row.Attempts[1].Choice; c == nil || c.RunnerUp != "w0" || len(c.Candidates) != 0 ||
			row.Features.Chain != nil || row.Features.Prefix != 0xfeed || row.TraceURL != v.TraceURL {
			t.Errorf("it is listed as %+v", row)
		}
		if len(d.Attempts[1].Choice.Candidates) != 2 || d.Features.Chain == nil {
			t.Error("listing the record changed it")
		}
		r.ops(http.StatusNotFound, http.MethodGet, "/admin/decisions/unknown", "")
	})
}

// TestExportHasCompleteRecordsOldestFirst: it has all matching records, one per line.
func TestExportHasCompleteRecordsOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		for i := range 1500 {
			d := wholeDecision()
			d.RequestID, d.Tenant = fmt.Sprintf("r%04d", i), []string{"acme", "umbrella"}[i%2]
			r.addDecisions(d)
		}
		for query, want := range map[string]int{"": 1500, "?tenant=acme": 750, "?limit=1200": 1200} {
			got := r.ops(http.StatusOK, http.MethodGet, "/admin/decisions"+query, "", "Accept", "application/x-ndjson")
			var last string
			n := 0
			for line := range strings.Lines(got.body) {
				var d decisions.Decision
				if err := json.Unmarshal([]byte(line), &d); err != nil || d.RequestID <= last ||
					d.SchemaVersion != decisions.SchemaVersion {
					t.Fatalf("%s: %s comes after %s (%v)", query, line, last, err)
				}
				last = d.RequestID
				n++
			}
			if n != want || got.header.Get("Content-Type") != "application/x-ndjson" || n > 0 && query != "?tenant=acme" &&
				last != "r1499" {
				t.Errorf("%s: %d lines up to %s, want %d", query, n, last, want)
			}
		}
	})
}

// TestServedAndRejectedRequestsAreRecorded: the record has no text of the prompt and no key.
func TestServedAndRejectedRequestsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.post("/v1/chat/completions", chatBody("small", "a secret", ""), "Authorization", "Bearer filed", "X-Request-ID",
			"good")
		r.post("/v1/chat/completions", chatBody("small", "a secret", ""), "Authorization", "Bearer wrong", "X-Request-ID",
			"refused")
		p, got := r.listDecisions("")
		if strings.Join(got, " ") != "refused good" || p.Items[0].Code != "invalid_api_key" || p.Items[1].Tenant != "filed" ||
			len(p.Items[1].Attempts) != 1 {
			t.Errorf("the list is %+v", p)
		}
		if text := r.ops(http.StatusOK, http.MethodGet, "/admin/decisions/good", "").body; strings.Contains(text,
			"a secret") || strings.Contains(text, "Bearer") {
			t.Errorf("the record contains a secret: %s", text)
		}
	})
}

// openStream opens a stream of decisions; the test's end closes it.
func openStream(t *testing.T, url, key, query string, headers ...string) (*http.Response, *bufio.Reader) {
	t.Helper()
	return openStreamAt(t, url+"/admin/decisions/stream"+query, key, headers...)
}

// openStreamAt opens a stream of the admin API; the test's end closes it.
func openStreamAt(t *testing.T, url, key string, headers ...string) (*http.Response, *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := networkOf(t).client.Do(req)
	must(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp, bufio.NewReader(resp.Body)
}

// wholeDecision is a record of a request that failed at its second worker.
func wholeDecision() *decisions.Decision {
	return &decisions.Decision{SchemaVersion: decisions.SchemaVersion, Time: time.Unix(1_700_000_000, 5_000_000).UTC(),
		RequestID: "r-1", Generation: 7,
		Tenant: "acme", Key: "k1", Class: "batch", AskedClass: "interactive", Method: "POST", Route: "/chat/completions",
		TraceID: "0af7651916cd43dd8448eb211c80319c", Dialect: "chat", Stream: true, RequestedModel: "gpt-4o-mini",
		Model: "fake-7b",
		Tier:  "small", Rule: "alias", RuleNote: "X-Model-Tier: unknown", Policy: "chwbl", Worker: "w1",
		Reason: "prefix_home",
		Attempts: []decisions.Attempt{{Worker: "w0", ErrorType: "connect"},
			{Worker: "w1", Status: 500, ErrorType: "500", Predicted: 32}},
		Promoted: true, Usage: decisions.Usage{Prompt: 40, Cached: 30, Output: 9}, Estimated: true, QueueMs: 2.5, TTFTMs: 12,
		DurationMs: 90.25, OverheadMs: 0.5,
		Result: decisions.Failed, Status: 502, Code: "worker_error", Limit: "rpm", Shed: "depth",
		Cause: "the worker answered 500"}
}

// sse is one server-sent event as a browser sees it.
type sse struct {
	id    int64
	event string
	data  string
}

// nextEvent returns the next event that has data.
func nextEvent(t *testing.T, from *bufio.Reader) (e sse) {
	t.Helper()
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		switch field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); field {
		case "id":
			e.id, err = strconv.ParseInt(value, 10, 64)
			must(t, err)
		case "event":
			e.event = value
		case "data":
			e.data = value
			return e
		}
	}
}

// TestDecisionStreamSendsNewDecisions: it has the filters of the list, resumes after the last event ID,
// and has headers that keep proxies from buffering.
func TestDecisionStreamSendsNewDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		plane := startServer(t, r.front)
		resp, events := openStream(t, plane, "eyes", "?tenant=acme")
		for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store",
			"X-Accel-Buffering": "no"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		r.addDecisions(&decisions.Decision{RequestID: "a", Tenant: "umbrella"},
			&decisions.Decision{RequestID: "b", Tenant: "acme"})
		e := nextEvent(t, events)
		var v decisionShown
		must(t, json.Unmarshal([]byte(e.data), &v))
		if e.event != "decision" || v.RequestID != "b" || e.id != v.Seq || v.Seq != r.recorded().Span().First+1 {
			t.Errorf("the event is %+v", e)
		}
		for i, resume := range [][]string{{"?last_event_id=0"}, {fmt.Sprintf("?last_event_id=%d", v.Seq-1)},
			{"?last_event_id=0", "Last-Event-ID", fmt.Sprint(v.Seq - 1)}} {
			_, again := openStream(t, plane, "eyes", resume[0], resume[1:]...)
			must(t, json.Unmarshal([]byte(nextEvent(t, again).data), &v))
			if want := []string{"a", "b", "b"}[i]; v.RequestID != want {
				t.Errorf("%v begins with %s, want %s", resume, v.RequestID, want)
			}
		}
		for _, bad := range []string{"x", "-1", "1.5"} {
			if got := r.callAdmin("eyes", http.MethodGet, "/admin/decisions/stream?last_event_id="+bad, ""); got.status !=
				http.StatusUnprocessableEntity {
				t.Errorf("last_event_id=%s: %d", bad, got.status)
			}
		}
	})
}

// TestDecisionStreamsAreLimited: one stream too many gets 429 until another one ends.
func TestDecisionStreamsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		plane := startServer(t, r.front)
		var first *http.Response
		for i := range 32 {
			resp, _ := openStream(t, plane, "ops", "")
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("stream %d: %d", i, resp.StatusCode)
			}
			first = resp
		}
		if got := r.callAdmin("ops", http.MethodGet, "/admin/decisions/stream",
			""); got.status != http.StatusTooManyRequests ||
			got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "32 streams") {
			t.Errorf("one more: %d %s", got.status, got.body)
		}
		if text := r.scrape(); !strings.Contains(text, "tierway_decisions_streams 32") {
			t.Error("the metrics do not count the streams")
		}
		first.Body.Close()
		waitUntil(t, "a stream to end", func() bool { return r.plane.Streams() < 32 })
		if resp, _ := openStream(t, plane, "ops", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("after one has left: %d", resp.StatusCode)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
