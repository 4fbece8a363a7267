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
	// junkModels is how many models nobody has are asked for.
	junkModels = 10_000
	// junkOthers is how many requests of each other kind of junk are sent: one of
	// them is enough to be seen.
	junkOthers = 100
)

// junks are requests of which everything that a client can make up is made up, the
// i-th of each kind. The first is the one with a model.
func (r *watchRig) junks() []func(ctx context.Context, i int) *http.Request {
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
		func(ctx context.Context, i int) *http.Request { // an alias that is a pattern
			return junk(ctx, i, http.MethodPost, "/v1/chat/completions", rig.Chat("any-"+word(i), word(i)))
		},
		func(ctx context.Context, i int) *http.Request { // the classifier's choice
			return junk(ctx, i, http.MethodPost, "/v1/chat/completions", rig.Chat("auto", word(i), `"stream":true`))
		},
		func(ctx context.Context, i int) *http.Request { // a stranger
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

// TestNoClientAddsASeries sends ten thousand models that nobody has, and junk
// wherever else a client can put any.
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
	kinds := r.junks()
	for i := range kinds { // one of each: what a series needs to begin
		r.Send(kinds[i](t.Context(), i))
	}
	r.post(http.StatusOK, "/v1/chat/completions", rig.Chat("sim", "hello"))
	before := r.series()

	total := r.flood(kinds)
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
			t.Errorf("a client's word is in %s", series)
		}
		if _, there := before[series]; !there && !strings.HasPrefix(series, "tierway_tenant_") {
			t.Errorf("%s is new", series)
		}
		if strings.HasPrefix(series, "tierway_tenant_requests_total{") && strings.Contains(series, `outcome="ok"`) {
			tenants++
		}
	}
	if tenants > 3+2 { // other and none are the two more
		t.Errorf("%d tenants have series, 3 may have their own", tenants)
	}
	t.Logf("%d requests: %d series before, %d after", total, len(before), len(after))
	r.junkless()
}

// flood sends the junk and returns how much it was.
func (r *watchRig) flood(kinds []func(context.Context, int) *http.Request) (total int) {
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

// series are those of the gateway itself.
func (r *watchRig) series() gateway.Samples {
	r.T.Helper()
	m, err := r.Metrics()
	if err != nil {
		r.T.Fatal(err)
	}
	maps.DeleteFunc(m, func(series string, _ float64) bool { return !strings.HasPrefix(series, "tierway_") })
	return m
}

// junkless checks that records name nothing that a client made up, but the
// request's own id and a name that a configured pattern takes.
func (r *watchRig) junkless() {
	r.T.Helper()
	seen := map[string]int{}
	for _, d := range readRecords(r.T, strings.NewReader(r.export())) {
		seen[d.RequestedModel]++
		if strings.HasPrefix(d.RequestedModel, "any-junk") {
			d.RequestedModel = ""
		}
		d.RequestID = ""
		if line := fmt.Sprintf("%+v", d); strings.Contains(strings.ToLower(line), "junk") {
			r.T.Errorf("a record holds a client's word: %s", line)
		}
	}
	if seen["other"] < junkModels {
		r.T.Errorf("%d records have the model other; these are all: %v", seen["other"], slices.Sorted(maps.Keys(seen)))
	}
}
