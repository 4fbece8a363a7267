package watch

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

const (
	// junkModels is the number of requests with different unknown models.
	junkModels = 10_000
	// junkOthers is the number of requests of each other kind of junk. A single one would
	// already show a leak.
	junkOthers = 100
)

// junkRequests returns the kinds of requests with invented values in all places that a client
// controls. Each function makes the i-th request of its kind. The first kind invents the model.
func (r *watchRig) junkRequests() []func(ctx context.Context, i int) *http.Request {
	word := func(i int) string { return fmt.Sprintf("junk%d", i) }
	junk := func(ctx context.Context, i int, method, path, body string, more ...string) *http.Request {
		w := word(i)
		req := r.Request(ctx, method, path, body,
			append([]string{"X-Request-Id", w, "X-Model-Tier", w, "X-Session-Id", w, "X-Request-Priority", w, "User-Agent", w,
				"X-Forwarded-For", w, "Accept", w, "Tracestate", w + "=1", "Baggage", w + "=1", w, w}, more...)...)
		req.Host = w + ".example"
		return req
	}
	return []func(ctx context.Context, i int) *http.Request{
		func(ctx context.Context, i int) *http.Request {
			return junk(ctx, i, http.MethodPost, "/v1/chat/completions",
				rig.Chat(word(i), word(i), `"user":`+rig.Quoted(word(i)), rig.Quoted(word(i))+`:1`))
		},
		func(ctx context.Context, i int) *http.Request { // matches an alias pattern
			return junk(ctx, i, http.MethodPost, "/v1/chat/completions", rig.Chat("any-"+word(i), word(i)))
		},
		func(ctx context.Context, i int) *http.Request { // the classifier's choice
			return junk(ctx, i, http.MethodPost, "/v1/chat/completions", rig.Chat("auto", word(i), `"stream":true`))
		},
		func(ctx context.Context, i int) *http.Request { // with an unknown key
			return junk(ctx, i, http.MethodPost, "/v1/messages", rig.Chat("sim", word(i)), "Authorization", "Bearer "+word(i),
				"X-Api-Key", word(i))
		},
		func(ctx context.Context, i int) *http.Request {
			return junk(ctx, i, http.MethodPost, "/v1/"+word(i)+"/"+word(i)+"?"+word(i)+"="+word(i), word(i))
		},
		func(ctx context.Context, i int) *http.Request {
			return junk(ctx, i, strings.ToUpper(word(i)), "/v1/chat/completions", "")
		},
		func(ctx context.Context, i int) *http.Request {
			return junk(ctx, i, http.MethodPost, "/background/v1/messages/"+word(i), rig.Chat("sim", word(i)))
		},
		func(ctx context.Context, i int) *http.Request {
			return junk(ctx, i, http.MethodGet, "/v1/responses/"+word(i), "")
		},
		func(ctx context.Context, i int) *http.Request {
			return junk(ctx, i, http.MethodGet, "/v1/models/"+word(i), "")
		},
		func(ctx context.Context, i int) *http.Request {
			return junk(ctx, i, http.MethodPost, "/v1/completions", word(i), "Content-Type", "application/"+word(i),
				"Content-Encoding", word(i))
		},
		func(ctx context.Context, i int) *http.Request {
			return junk(ctx, i, http.MethodPost, "/v1/audio/transcriptions", word(i), "Content-Type",
				"multipart/form-data; boundary="+word(i))
		},
	}
}

// TestNoClientAddsASeries sends ten thousand unknown models, and invented values in all other places
// that a client controls.
func TestNoClientAddsASeries(t *testing.T) {
	r := newRig(t, 2, engines.Config{Slots: 1024}, nil)
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("{ name: tenant-%d, sha256: %s }", i, rig.Digest(fmt.Sprint("key of ", i))))
	}
	r.Serve(rig.Settings{
		"auth": "{ keys: [ { name: acme, sha256: " + rig.Digest(rig.TenantKey) + " }, " + strings.Join(keys, ", ") +
			" ] }",
		"models":    `{ auto: classify, "any-*": small }`,
		"telemetry": "{ tenants: 3 }",
		"log":       "{ access: false }",
		"decisions": "{ keep: 20000 }",
	})
	kinds := r.junkRequests()
	for i := range kinds { // one request of each kind creates the legitimate series
		r.Send(kinds[i](t.Context(), i))
	}
	r.post(http.StatusOK, "/v1/chat/completions", rig.Chat("sim", "hello"))
	before := r.series()

	total := r.sendJunk(kinds)
	for i := range 20 {
		r.post(http.StatusOK, "/v1/chat/completions", rig.Chat("sim", "hello"), "Authorization",
			fmt.Sprint("Bearer key of ", i))
	}
	if got := r.Sum("tierway_requests_started_total"); got != float64(total+len(kinds)+1+20) {
		t.Errorf("%v requests have started, %d were sent", got, total+len(kinds)+1+20)
	}
	after := r.series()
	tenants := 0
	for series := range after {
		if strings.Contains(strings.ToLower(series), "junk") {
			t.Errorf("a client's value is in %s", series)
		}
		if _, there := before[series]; !there && !strings.HasPrefix(series, "tierway_tenant_") {
			t.Errorf("%s is new", series)
		}
		if strings.HasPrefix(series, "tierway_tenant_requests_total{") && strings.Contains(series, `outcome="ok"`) {
			tenants++
		}
	}
	if tenants > 3+2 { // 3 of their own, other and none
		t.Errorf("%d tenants have series, 3 may have their own", tenants)
	}
	t.Logf("%d requests: %d series before, %d after", total, len(before), len(after))
	r.checkRecordsWithoutJunk()
}

// sendJunk sends all junk requests and returns their number.
func (r *watchRig) sendJunk(kinds []func(context.Context, int) *http.Request) (total int) {
	total = junkModels + junkOthers*(len(kinds)-1)
	var next atomic.Int64
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < total; i = int(next.Add(1)) - 1 {
				kind := kinds[0]
				if i >= junkModels {
					kind = kinds[1+(i-junkModels)%(len(kinds)-1)]
				}
				if got := r.Send(kind(r.T.Context(), 100+i)); got.Err != nil {
					r.T.Error(got.Err)
				}
			}
		})
	}
	clients.Wait()
	return total
}

// series returns the series of Tierway.
func (r *watchRig) series() gateway.Samples {
	r.T.Helper()
	m, err := r.Metrics()
	if err != nil {
		r.T.Fatal(err)
	}
	maps.DeleteFunc(m, func(series string, _ float64) bool { return !strings.HasPrefix(series, "tierway_") })
	return m
}

// checkRecordsWithoutJunk checks that records have no invented value, except the request's id and a
// model that matches a configured pattern.
func (r *watchRig) checkRecordsWithoutJunk() {
	r.T.Helper()
	seen := map[string]int{}
	for _, d := range readRecords(r.T, strings.NewReader(r.export())) {
		seen[d.RequestedModel]++
		if strings.HasPrefix(d.RequestedModel, "any-junk") {
			d.RequestedModel = ""
		}
		d.RequestID = ""
		if line := fmt.Sprintf("%+v", d); strings.Contains(strings.ToLower(line), "junk") {
			r.T.Errorf("a record has a client's value: %s", line)
		}
	}
	if seen["other"] < junkModels {
		r.T.Errorf("%d records have the model other; these are all: %v", seen["other"], slices.Sorted(maps.Keys(seen)))
	}
}
