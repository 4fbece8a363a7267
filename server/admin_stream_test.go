package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
	"tierway/server/admin"
	"tierway/tenants"
)

// openEvents opens a stream of the topics.
func openEvents(t *testing.T, plane, key, query string, headers ...string) *bufio.Reader {
	t.Helper()
	resp, events := openStreamAt(t, plane+"/admin/stream?topics="+query, key, headers...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %d", query, resp.StatusCode)
	}
	return events
}

// TestEventStreamSendsTheWantedTopics: overview and workers as their operations answer, without an id.
func TestEventStreamSendsTheWantedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		plane := startServer(t, r.front)
		all := openEvents(t, plane, "eyes", "decisions,workers,overview")
		o, w := nextEvent(t, all), nextEvent(t, all)
		var overview admin.OverviewView
		must(t, json.Unmarshal([]byte(o.data), &overview))
		if o.event != "overview" || !overview.Ready || len(overview.Tiers) != 1 {
			t.Errorf("the first event is %+v", o)
		}
		var workers struct {
			Workers []struct{ Name string } `json:"workers"`
			Pools   map[string]any          `json:"pools"`
		}
		must(t, json.Unmarshal([]byte(w.data), &workers))
		if w.event != "workers" || w.id != 0 || len(workers.Workers) != 2 || workers.Pools["small"] == nil {
			t.Errorf("the second event is %+v", w)
		}
		only := openEvents(t, plane, "eyes", "workers")
		for range 2 {
			if e := nextEvent(t, only); e.event != "workers" {
				t.Errorf("a stream of workers has %s", e.event)
			}
		}
	})
}

// TestEventsAreEncodedOnceForAllStreams: two readers get the same bytes, although each overview has
// another time.
func TestEventsAreEncodedOnceForAllStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		plane := startServer(t, r.front)
		one, other := openEvents(t, plane, "eyes", "overview"), openEvents(t, plane, "ops", "overview")
		seen := map[string]bool{}
		for range 3 {
			seen[nextEvent(t, one).data] = true
		}
		same := 0
		for range 3 {
			if seen[nextEvent(t, other).data] {
				same++
			}
		}
		if len(seen) != 3 || same < 2 {
			t.Errorf("of %d overviews, %d are the same for both readers", len(seen), same)
		}
	})
}

// TestEventStreamResumesDecisions with the filter of the list and the id of the last record.
func TestEventStreamResumesDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		plane := startServer(t, r.front)
		for _, id := range []string{"a", "b", "c"} {
			r.addDecisions(&decisions.Decision{RequestID: id, Tenant: "acme"},
				&decisions.Decision{RequestID: id, Tenant: "other"})
		}
		first := r.recorded().Span().First
		for _, tt := range []struct {
			query, header, want string
		}{{"&last_event_id=0", "", "a"}, {"&last_event_id=0", fmt.Sprint(first), "b"},
			{fmt.Sprintf("&last_event_id=%d", first+3), "", "c"}} {
			var headers []string
			if tt.header != "" {
				headers = []string{"Last-Event-ID", tt.header}
			}
			events := openEvents(t, plane, "eyes", "decisions,overview&tenant=acme"+tt.query, headers...)
			e := nextEvent(t, events)
			for e.event == "overview" {
				e = nextEvent(t, events)
			}
			var v decisionShown
			must(t, json.Unmarshal([]byte(e.data), &v))
			if e.event != "decision" || v.RequestID != tt.want || v.Tenant != "acme" || e.id != v.Seq {
				t.Errorf("%s %s begins with %+v", tt.query, tt.header, e)
			}
		}
	})
}

// TestStreamsEndWithTheirKeyAndOnDrain: open streams end at once, and new ones are rejected while the gateway drains.
func TestStreamsEndWithTheirKeyAndOnDrain(t *testing.T) {
	for _, path := range []string{"/admin/decisions/stream", "/admin/stream?topics=workers,decisions"} {
		synctest.Test(t, func(t *testing.T) {
			r := newAdminRig(t)
			plane := startServer(t, r.front)
			made := decode[struct {
				Secret string     `json:"secret"`
				Admin  adminShown `json:"admin"`
			}](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/admins", `{"name":"brief","role":"viewer"}`))
			resp, brief := openStreamAt(t, plane+path, made.Secret)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %d with %s", path, resp.StatusCode, made.Secret[:len(tenants.TenantPrefix)])
			}
			_, other := openStreamAt(t, plane+path, "eyes")
			if text := r.scrape(); !strings.Contains(text, "tierway_decisions_streams 2") {
				t.Errorf("%s: the metrics do not count the streams", path)
			}
			r.ops(http.StatusNoContent, http.MethodDelete, "/admin/admins/"+made.Admin.ID, "")
			checkEnd(t, path+" of an ended key", brief)
			r.addDecisions(&decisions.Decision{RequestID: "later"})
			for nextEvent(t, other).event != "decision" {
			}
			r.proxy.Drain()
			checkEnd(t, path+" while the gateway drains", other)
			if got := r.callAdmin("ops", http.MethodGet, path, ""); got.status != http.StatusServiceUnavailable ||
				got.header.Get("Retry-After") == "" {
				t.Errorf("%s while it drains: %d", path, got.status)
			}
			waitUntil(t, "no stream", func() bool { return r.plane.Streams() == 0 })
		})
	}
}

// checkEnd reads a stream, which must end at once.
func checkEnd(t *testing.T, what string, events *bufio.Reader) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Second; {
		if _, err := events.ReadString('\n'); err != nil {
			return
		}
	}
	t.Errorf("%s: the stream goes on", what)
}
