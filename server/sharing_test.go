package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/memnet/memredis"
)

// sharingShown is the part of /admin/status about sharing, with the rest of the answer for its field names.
type sharingShown struct {
	Sharing *struct {
		Gateways []struct {
			ID    string
			Open  []string
			Pools []string
		}
		CaughtUp  bool       `json:"caught_up"`
		SharedAt  *time.Time `json:"shared_at"`
		Exchanges int64
		Failed    int64 `json:"failed_exchanges"`
		Sent      int64 `json:"sent_bytes"`
		Received  int64 `json:"received_bytes"`
	}
}

// newSharingRig serves adminYAML without a database, on the Redis at url; "" means none.
func newSharingRig(t *testing.T, url string) *adminRig {
	t.Helper()
	yaml := adminYAML("")
	if url != "" {
		yaml = strings.Replace(yaml, `store: { sql: ""`, fmt.Sprintf(`store: { sql: "", redis: %q`, url), 1)
	}
	return adminRigOf(newRig(t, yaml, fakeEngine(), fakeEngine()))
}

// sharing returns what /admin/status says about sharing.
func (r *adminRig) sharing() sharingShown {
	r.t.Helper()
	return decode[sharingShown](r.t, r.ops(http.StatusOK, http.MethodGet, "/admin/status", ""))
}

// TestStatusShowsWhatGatewaysShare: the other gateways with their pools and open breakers.
func TestStatusShowsWhatGatewaysShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := memredis.Start(t, networkOf(t).Network).URL
		a, b := newSharingRig(t, url), newSharingRig(t, url)
		if got := a.sharing().Sharing; got == nil || got.CaughtUp || got.SharedAt != nil || len(got.Gateways) != 0 {
			t.Errorf("before the first exchange: %+v", got)
		}
		a.runControl()
		b.runControl()
		waitUntil(t, "both gateways", func() bool {
			return len(a.sharing().Sharing.Gateways) == 1 && len(b.sharing().Sharing.Gateways) == 1
		})
		got := a.sharing().Sharing
		if !got.CaughtUp || got.SharedAt == nil || got.Exchanges == 0 || got.Sent == 0 || got.Received == 0 {
			t.Errorf("%+v", got)
		}
		if g := got.Gateways[0]; g.ID == "" || g.ID == b.sharing().Sharing.Gateways[0].ID || len(g.Open) != 0 ||
			!slices.Equal(g.Pools, []string{"small"}) {
			t.Errorf("the other gateway is %+v", g)
		}
		status := decode[struct{ Sharing json.RawMessage }](t, a.ops(http.StatusOK, http.MethodGet, "/admin/status", ""))
		if strings.Contains(string(status.Sharing), "127.0.0.1") {
			t.Errorf("the sharing has an address: %s", status.Sharing)
		}
		gate := b.control.Snapshot().ByName["small"].Members["w1"].Gate
		for range 5 {
			if ticket, err := gate.Allow(0); err == nil {
				gate.Report(ticket, fmt.Errorf("the worker returned 500"))
			}
		}
		waitUntil(t, "the open breaker of the other gateway", func() bool {
			g := a.sharing().Sharing.Gateways
			return len(g) == 1 && slices.Equal(g[0].Open, []string{"small/w1"})
		})
		if got := newSharingRig(t, "").sharing().Sharing; got != nil {
			t.Errorf("without Redis: %+v", got)
		}
	})
}

// TestReadinessNamesSharingUntilTheLogWasRead. The gateway is ready nevertheless, and during an outage only the outage
// is named.
func TestReadinessNamesSharingUntilTheLogWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memredis.Start(t, networkOf(t).Network)
		r := newSharingRig(t, server.URL)
		ready := func() string {
			got := r.do(http.MethodGet, "/readyz", "")
			if got.status != http.StatusOK {
				t.Errorf("/readyz is %d: %s", got.status, got.body)
			}
			return got.body
		}
		if got := ready(); !strings.Contains(got, `"sharing: `) || strings.Contains(got, `"redis: `) {
			t.Errorf("before the first exchange: %s", got)
		}
		stop := r.runControl()
		waitUntil(t, "the end of reading", func() bool { return !strings.Contains(ready(), "sharing") })
		stop()
		if got := r.sharing().Sharing; !got.CaughtUp {
			t.Errorf("%+v", got)
		}
		server.Kill()
		away := newSharingRig(t, server.URL)
		away.runControl()
		waitUntil(t, "a failed exchange", func() bool { return away.sharing().Sharing.Failed != 0 })
		defer time.Sleep(time.Second) // go-redis ends its goroutines a moment later
		ctx, stopProbes := context.WithCancel(t.Context())
		var probes sync.WaitGroup
		probes.Go(func() { away.control.Stores.Redis.Run(ctx) })
		defer probes.Wait()
		defer stopProbes()
		waitUntil(t, "an outage", func() bool { return !away.control.Stores.Redis.Up() })
		if got := away.do(http.MethodGet, "/readyz", "").body; strings.Contains(got, "sharing") ||
			!strings.Contains(got, `"redis: `) {
			t.Errorf("during an outage: %s", got)
		}
		if got := away.sharing().Sharing; got.CaughtUp || got.Failed == 0 || got.SharedAt != nil {
			t.Errorf("during an outage: %+v", got)
		}
		if got := newSharingRig(t, "").do(http.MethodGet, "/readyz", "").body; strings.Contains(got, "sharing") {
			t.Errorf("without Redis: %s", got)
		}
	})
}
