package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/server/admin"
)

// regionsRig has the worker w0 in us-west, the region of the gateway, and w1 in eu-central.
func regionsRig(t *testing.T, proxy string) *adminRig {
	t.Helper()
	var list []string
	for i, region := range []string{"us-west", "eu-central"} {
		w := newServer(t, fakeEngine())
		list = append(list, fmt.Sprintf("{ name: w%d, url: %q, region: %s }", i, w.URL, region))
	}
	return adminRigOf(newRig(t, strings.Replace(adminYAML(""), "workers: [ %s ]", "workers: [ "+strings.Join(list, ", ")+` ]
region: us-west
regions: { header: X-Client-Region }
trusted_proxies: [ "`+proxy+`" ] # %s`, 1)))
}

// TestRegionHeaderCountsFromTrustedProxiesOnly: other requests have the region of the gateway.
func TestRegionHeaderCountsFromTrustedProxiesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for proxy, want := range map[string]string{"127.0.0.0/8": "w1", "192.0.2.1": "w0"} {
			r := regionsRig(t, proxy)
			for header, to := range map[string]string{"": "w0", "us-west": "w0", "mars": "w0", "eu-central": want} {
				for range 3 {
					a := r.post("/v1/chat/completions", chatBody("small", "hi", ""), "Authorization", "Bearer filed",
						"X-Client-Region", header)
					if got := a.header.Get("X-Routed-To"); a.status != http.StatusOK || got != to {
						t.Errorf("trusted proxy %s, region %q: %d from %q, want %q", proxy, header, a.status, got, to)
					}
				}
			}
		}
	})
}

// TestExplanationShowsRegions: the worker of the other region is listed with the reason, and the header of the
// explained request counts.
func TestExplanationShowsRegions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := regionsRig(t, "192.0.2.1")
		for header, want := range map[string][3]string{"": {"us-west", "w0", "w1"},
			"eu-central": {"eu-central", "w1", "w0"}} {
			e := decode[admin.RouteExplanation](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain",
				`{"headers":{"X-Client-Region":"`+header+`"},"request":{"model":"small","messages":[{"role":"user","content":"hi"}]}}`))
			others := e.Steps[len(e.Steps)-1].Worker.Others
			if e.Worker != want[1] || len(others) != 1 || others[0].Worker != want[2] || others[0].Why != "region" {
				t.Errorf("%q: %s, others %+v", header, e.Worker, others)
			}
			if notes := strings.Join(e.Notes, "\n"); !strings.Contains(notes, "the region of the request is "+want[0]) {
				t.Errorf("%q: the notes are %q", header, notes)
			}
		}
		w := decode[struct{ Region string }](t, r.ops(http.StatusOK, http.MethodGet, "/admin/workers/w1", ""))
		if w.Region != "eu-central" {
			t.Errorf("the worker shows the region %q", w.Region)
		}
	})
}
