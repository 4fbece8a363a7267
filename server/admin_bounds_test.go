package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tierway/tenants"
)

// AU-05: who tries many keys is slowed down, and nobody else of its address.
func TestGuessingAdminKeysIsSlow(t *testing.T) {
	r := newAdminRig(t)
	for range guessesAMinute {
		if got := r.ask("wrong", http.MethodGet, "/admin/status", ""); got.status != http.StatusUnauthorized {
			t.Fatalf("%d: %s", got.status, got.body)
		}
	}
	if got := r.ask("wrong", http.MethodGet, "/admin/status", ""); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("one more is %d: %s", got.status, got.body)
	}
	if got := r.ask("", http.MethodPost, "/admin/bootstrap", `{"secret":"x","name":"eve"}`); got.status != http.StatusTooManyRequests {
		t.Errorf("a guess at the bootstrap is %d: %s", got.status, got.body)
	}
	r.ops(http.StatusOK, http.MethodGet, "/admin/status", "")
}

// TestRefusalsAreBoundedByAddress: one a second of each, and of all a thousand.
func TestRefusalsAreBoundedByAddress(t *testing.T) {
	a := &adminPlane{refused: map[string]refusals{}}
	for second := int64(1); second < 4; second++ {
		n, left := 0, 0
		for i := range 2 * refusedMax {
			if second%2 == 0 { // those that are forgotten come first
				i = 2*refusedMax - 1 - i
			}
			for range 3 {
				more, elsewhere, first := a.firstOfSecond(fmt.Sprintf("address %d", i), second)
				left += more + elsewhere
				if first {
					n++
				}
			}
		}
		if n != refusedMax || len(a.refused) > refusedMax {
			t.Errorf("in second %d: %d, and %d are remembered", second, n, len(a.refused))
		}
		// Of three from each of two thousand, one from each of a thousand is written.
		if want := 5 * refusedMax; second > 1 && left != want {
			t.Errorf("in second %d: %d of the second before were left out, want %d", second, left, want)
		}
	}
}

// AU-05, AD-08: who fails to get in leaves a line with the path that was asked for,
// and a number for those that come at once.
func TestWhoIsNotLetInIsWrittenDown(t *testing.T) {
	log := &lines{}
	r := newAdminRig(t)
	r.log = slog.New(slog.NewTextHandler(log, nil))
	for i, tt := range []struct {
		c                call
		status           int
		target, why, who string
	}{
		{call{method: "GET", path: "/admin/tenants/acme", key: "wrong"}, 401, "GET /admin/tenants/acme", "a wrong key", "unknown"},
		{call{method: "GET", path: "/admin/keys/k1", key: wellFormed(t, tenants.AdminPrefix)}, 401, "GET /admin/keys/k1", "a wrong key", "unknown"},
		{call{method: "GET", path: "/admin/keys/k1", key: "filed"}, 401, "GET /admin/keys/k1", "a tenant's key", "tenant:filed"},
		{call{method: "PATCH", path: "/admin/tenants/acme", key: "eyes", body: "{}"}, 403, "PATCH /admin/tenants/acme", "the role is viewer", "eyes"},
		{call{method: "POST", path: "/admin/bootstrap", body: `{"secret":"guess","name":"eve"}`}, 401, "POST /admin/bootstrap", "a wrong secret", "bootstrap"},
		{call{method: "POST", path: "/admin/tenants", key: "ops", body: "{}", header: http.Header{"Sec-Fetch-Site": {"cross-site"}}}, 403, "POST /admin/tenants", "a page of another site", "unknown"},
	} {
		r.plane.refused = map[string]refusals{"192.0.2.1": {second: 1, more: i}} // the second before
		if got := r.send(tt.c); got.status != tt.status {
			t.Fatalf("%s is %d: %s", tt.target, got.status, got.body)
		}
		want := tt.why
		if i > 0 {
			want += fmt.Sprintf("; %d more of this address since its last line", i)
		}
		all := r.audited()
		if e := all[0]; len(all) != i+1 || e.Action != "admin.refused" || e.Target != tt.target || e.Outcome != want || e.Actor != tt.who || e.IP != "192.0.2.1" || e.RequestID == "" {
			t.Errorf("%s is written down as %+v", tt.target, e)
		}
		if lines := strings.Count(log.String(), "\n"); lines != i+1 || !strings.Contains(log.String(), tt.why) || strings.Contains(log.String(), "guess") || tenants.WellFormed(tt.c.key) && strings.Contains(log.String(), tt.c.key) {
			t.Errorf("the log is %s", log)
		}
	}
	r.ask("", http.MethodGet, "/admin/tenants", "") // without a key nothing was tried
	r.plane.refused = map[string]refusals{}
	for range 5 {
		r.ask("wrong", http.MethodGet, "/admin/"+strings.Repeat("x", 400), "")
		r.ask("wrong", http.MethodGet, "/admin/tenants/"+strings.Repeat("x", 400), "")
	}
	if all := r.audited(); len(all) < 7 || len(all) > 9 || len(all[0].Target) != 300 { // a second may have passed
		t.Errorf("of five at once are written down: %+v", all)
	}
}

// AD-14: no search, cursor or number gets further than the list.
func TestOddQueriesFindNothing(t *testing.T) {
	r := newAdminRig(t)
	for query, status := range map[string]int{
		"q=%25_%25_%25": 200, "q=%27%3BDROP+TABLE+tenants": 200, "cursor=%00": 200, "cursor=zzz": 200,
		"limit=0": 422, "limit=201": 422, "limit=1e9": 422, "limit=-1": 422, "sort=%3Bdrop": 422, "page=1000000000": 422, "q=" + strings.Repeat("x", 101): 422,
	} {
		if got := r.ask("ops", http.MethodGet, "/admin/tenants?"+query, ""); got.status != status {
			t.Errorf("%s is %d: %s", query, got.status, got.body)
		}
	}
	for query, status := range map[string]int{
		"actor=%25": 200, "action=';--": 200, "since=2020-01-01T00:00:00Z": 200, "since=yesterday": 422, "cursor=-1": 422, "cursor=9223372036854775807": 200, "limit=500": 422,
	} {
		if got := r.ask("ops", http.MethodGet, "/admin/audit?"+query, ""); got.status != status {
			t.Errorf("audit: %s is %d: %s", query, got.status, got.body)
		}
	}
}

// TestBodiesAreBounded: more than a mebibyte is not read.
func TestBodiesAreBounded(t *testing.T) {
	r := newAdminRig(t)
	r.ops(http.StatusRequestEntityTooLarge, http.MethodPost, "/admin/config/validate", `{"text":"`+strings.Repeat("#", 1<<20)+`"}`)
	r.ops(http.StatusBadRequest, http.MethodPost, "/admin/tenants", "{")
	r.ops(http.StatusBadRequest, http.MethodPost, "/admin/tenants", "")
	rec := httptest.NewRecorder()
	r.plane.engine.ServeHTTP(rec, httptest.NewRequest(http.MethodPut, "/admin/tenants", nil))
	if rec.Code != http.StatusMethodNotAllowed || rec.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("PUT is %d in %s", rec.Code, rec.Header().Get("Content-Type"))
	}
}
