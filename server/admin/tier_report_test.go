package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/store"
	"tierway/tenants"
	"tierway/tierscore/report"
	"tierway/tierscore/training"
)

// TestTheSavingsAreThoseAgainstTheLastTier: the same tokens at its price, minus what the tiers have cost without the
// response cache.
func TestTheSavingsAreThoseAgainstTheLastTier(t *testing.T) {
	cached := 0.5
	u := TierUsage{Tiers: []TierSum{{Tier: "small", Price: tenants.Price{Input: 1, Output: 2}}, {Tier: "medium"},
		{Tier: "large", Price: tenants.Price{Input: 10, CachedInput: &cached, Output: 20}}}}
	const million = 1_000_000
	u.sum([]store.UsageRow{
		{Group: "", Requests: 7, Refused: 7},
		{Group: "small", Requests: 31, Refused: 1, Prompt: 3 * million, Cached: million, Output: million,
			Money: 4 * tenants.Unit, CachedRequests: 2, Saved: tenants.Unit},
		{Group: "large", Requests: 10, Prompt: million, Output: million, Money: 30 * tenants.Unit},
		{Group: "a pool", Requests: 100, Prompt: million, Money: tenants.Unit},
	})
	u.Tiers[0].Price, u.Tiers[2].Price = tenants.Price{}, tenants.Price{}
	want := TierUsage{Requests: 40, Money: 35 * tenants.Unit, AtLast: 70*tenants.Unit + tenants.Unit/2,
		Saved: 35*tenants.Unit + tenants.Unit/2, Tiers: []TierSum{
			{Tier: "small", Requests: 30, Share: 0.75, Prompt: 3 * million, Cached: million, Output: million,
				Money: 5 * tenants.Unit, AtLast: 40*tenants.Unit + tenants.Unit/2},
			{Tier: "medium"},
			{Tier: "large", Requests: 10, Share: 0.25, Prompt: million, Output: million, Money: 30 * tenants.Unit,
				AtLast: 30 * tenants.Unit}}}
	if diff := cmp.Diff(want, u); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMoneyOfLabelsHasTheMeanTokensOfTheLedger(t *testing.T) {
	u := TierUsage{Requests: 100, Tiers: []TierSum{
		{Tier: "small", Price: tenants.Price{Input: 1}, Prompt: 30_000, Output: 1000},
		{Tier: "large", Price: tenants.Price{Input: 10, Output: 100}, Prompt: 10_000, Output: 2000}}}
	m := u.MoneyOf("small", "large")
	// 1,000 requests have 400,000 tokens of prompts and 30,000 of answers.
	if m == nil || m.PromptTokens != 400 || m.OutputTokens != 30 || m.Points[0].Money != tenants.Unit*2/5 ||
		m.Points[10].Money != 7*tenants.Unit {
		t.Errorf("%+v", m)
	}
	if m := u.MoneyOf("small", "unknown"); m != nil {
		t.Errorf("an unknown tier has the cost %+v", m)
	}
	u.Requests = 0
	if m := u.MoneyOf("small", "large"); m != nil {
		t.Errorf("no request has the cost %+v", m)
	}
}

func TestTierReportShowsUsageAndLabels(t *testing.T) {
	r := newPlaneRig(t)
	at := time.Now()
	if _, err := r.plane.control.Stores.SQL.WriteRows(t.Context(), []store.Row{
		{ID: "1", At: at, Tenant: "filed", Tier: "small", Outcome: "ok", Prompt: 5, Output: 6},
		{ID: "2", At: at.Add(-60 * 24 * time.Hour), Tenant: "filed", Tier: "small", Outcome: "ok", Prompt: 5, Output: 6},
	}); err != nil {
		t.Fatal(err)
	}
	get := func(query string, status int) (v TierReport) {
		t.Helper()
		a := r.ask("eyes", http.MethodGet, "/admin/tiers/report"+query, "")
		if a.Code != status {
			t.Fatalf("%d: %s", a.Code, a.Body)
		}
		if err := json.Unmarshal(a.Body.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := get("", 200); v.Usage == nil || v.Labels != nil || v.LabelsProblem != "" || v.Usage.Requests != 1 ||
		v.Usage.Last != "small" || v.Usage.Tiers[0].Prompt != 5 || v.Usage.Assumption == "" {
		t.Errorf("%+v", v)
	}
	r.plane.options.TierReport = func(context.Context) (*report.Report, error) {
		return &report.Report{SmallTier: "small", LargeTier: "small", TierReport: training.TierReport{Requests: 9}}, nil
	}
	from := at.AddDate(0, 0, -100).UTC().Format(time.DateOnly)
	if v := get("?from="+from, 200); v.Usage.Requests != 2 || v.Usage.From != from || v.Labels == nil ||
		v.Labels.Requests != 9 {
		t.Errorf("%+v", v)
	}
	r.plane.options.TierReport = func(context.Context) (*report.Report, error) { return nil, errors.New("collect more") }
	if v := get("", 200); v.Labels != nil || v.LabelsProblem != "collect more" {
		t.Errorf("%+v", v)
	}
	get("?from=yesterday", 422)
	r.plane.control.Stores.SQL = nil
	if v := get("", 200); v.Usage != nil {
		t.Errorf("%+v", v)
	}
}

// TestRepeatedRequestsAreNoTraffic: the requests of the tenant that repeats requests for labels do not count.
func TestRepeatedRequestsAreNoTraffic(t *testing.T) {
	r := newPlaneRigWith(t, fmt.Sprintf(`
tiers:
  - { name: small, model: s, workers: [ { name: w0, url: "http://127.0.0.1:9" } ] }
  - { name: large, model: l, workers: [ { name: w1, url: "http://127.0.0.1:9" } ] }
learning:
  hash_key: 0123456789abcdef
  directory: %q
  replay: { share: 0.1, api_key: filed, judge: { command: [cat] } }
`, t.TempDir()))
	if _, err := r.plane.control.Stores.SQL.WriteRows(t.Context(), []store.Row{
		{ID: "1", At: time.Now(), Tenant: "acme", Tier: "small", Outcome: "ok", Prompt: 5, Output: 6},
		{ID: "2", At: time.Now(), Tenant: "filed", Tier: "large", Outcome: "ok", Prompt: 7, Output: 8},
	}); err != nil {
		t.Fatal(err)
	}
	a := r.ask("eyes", http.MethodGet, "/admin/tiers/report", "")
	var v TierReport
	if err := json.Unmarshal(a.Body.Bytes(), &v); err != nil {
		t.Fatalf("%d %s: %v", a.Code, a.Body, err)
	}
	if u := v.Usage; u == nil || u.Requests != 1 || u.Tiers[0].Requests != 1 || u.Tiers[1].Requests != 0 ||
		u.Except != "filed" || !strings.Contains(u.Assumption, "the tenant filed") {
		t.Errorf("%+v", v.Usage)
	}
}
