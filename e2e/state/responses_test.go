package state

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// keeper is an engine that keeps responses and conversations. It does not check the tenant of a request.
type keeper struct {
	name string

	mu   sync.Mutex
	made int
	kept map[string]bool
	seen int
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen++
	w.Header().Set("Content-Type", "application/json")
	var body struct {
		Previous     string `json:"previous_response_id"`
		Conversation string `json:"conversation"`
	}
	_ = json.NewDecoder(q.Body).Decode(&body) // most requests have no body
	parts := strings.Split(strings.TrimPrefix(q.URL.Path, "/v1/"), "/")
	id, kind := "", strings.TrimSuffix(parts[0], "s") // response or conversation
	switch {
	case len(parts) > 1:
		id = parts[1]
	case body.Previous+body.Conversation != "":
		id = body.Previous + body.Conversation
	}
	if id != "" && !k.kept[id] {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"%s does not have %s","code":"not_here"}}`, k.name, id)
		return
	}
	switch {
	case len(parts) == 1:
		k.made++
		id = fmt.Sprintf("%s_%s_%d", kind[:4], k.name, k.made)
		k.kept[id] = true
	case q.Method == http.MethodDelete:
		delete(k.kept, id)
	}
	_, _ = io.WriteString(w, fmt.Sprintf(`{"id":%q,"object":%q,"status":"completed","output":[],"engine":%q}`, id, kind, k.name))
}

// received returns the number of requests that the engine has received.
func (k *keeper) received() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen
}

// evilKey is the key of another tenant.
const evilKey = "the-key-of-another-tenant"

// keepers is a rig of gateways with two keepers.
type keepers struct {
	*stateRig
	engines [2]*keeper
	own     rig.Settings
}

// newKeepers starts the engines. The gateways share a Redis.
func newKeepers(t *testing.T, redis *backends.RedisServer) *keepers {
	t.Helper()
	k := &keepers{stateRig: newRig(t, 0, engines.Config{})}
	var list []string
	for i := range k.engines {
		k.engines[i] = &keeper{name: fmt.Sprintf("w%d", i), kept: map[string]bool{}}
		server, err := engines.Start(k.engines[i], "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Kill)
		list = append(list, fmt.Sprintf("{ name: %%s%d, url: %q }", i, server.URL))
	}
	workers := strings.Join(list, ", ")
	k.own = rig.Settings{
		"store": stores("", redis.URL),
		"auth": fmt.Sprintf("{ keys: [ { name: acme, sha256: %s }, { name: evil, sha256: %s } ] }", rig.Digest(rig.TenantKey),
			rig.Digest(evilKey)),
		"tiers": "[ { name: small, model: sim, serves: [chat, responses], workers: [ " + fmt.Sprintf(workers, "w", "w") +
			" ] } ]",
		"pools": "[ { name: agents, model: agent, tenant: acme, serves: [responses], " +
			`paths: ["/v1/conversations", "/v1/conversations/*"], workers: [ ` + fmt.Sprintf(workers, "a", "a") + " ] } ]",
	}
	return k
}

// do sends a request to a gateway.
func (k *keepers) do(p *gateway.Process, key, method, path, body string) rig.Reply {
	k.T.Helper()
	return k.Send(k.RequestTo(k.T.Context(), method, strings.TrimSuffix(p.BaseURL, "/v1")+path, body, "Authorization",
		"Bearer "+key))
}

// create creates a response or conversation of acme and returns its id and the engine that has it.
func (k *keepers) create(p *gateway.Process, path, body string) (id, engine string) {
	k.T.Helper()
	got := k.do(p, rig.TenantKey, http.MethodPost, path, body)
	var answer struct{ ID, Engine string }
	if err := json.Unmarshal([]byte(got.Body), &answer); got.Status != http.StatusOK || err != nil {
		k.T.Fatalf("POST %s: %d %s", path, got.Status, got.Body)
	}
	return answer.ID, answer.Engine
}

// createResponse creates a response of acme.
func (k *keepers) createResponse(p *gateway.Process) (id, engine string) {
	k.T.Helper()
	return k.create(p, "/v1/responses", `{"model":"sim","input":"hello"}`)
}

// checkFound checks that a gateway sends acme's requests about an object to its engine.
func (k *keepers) checkFound(when string, p *gateway.Process, id, engine string) {
	k.T.Helper()
	for _, q := range k.requestsAbout(id) {
		got := k.do(p, rig.TenantKey, q.method, q.path, q.body)
		if got.Status != http.StatusOK || !strings.Contains(got.Body, `"engine":"`+engine+`"`) {
			k.T.Errorf("%s, %s %s %s: %d %s, want an answer of %s", when, q.method, q.path, q.body, got.Status, got.Body, engine)
		}
	}
}

// checkMissing checks that a gateway answers 404 for a key, and sends nothing to an engine.
func (k *keepers) checkMissing(when string, p *gateway.Process, key, id string) {
	k.T.Helper()
	k.checkNotSent(when, p, key, id, func(got rig.Reply) bool { return got.Status == http.StatusNotFound })
}

// checkNotSent checks that a gateway answers as it should for a key, and sends nothing to an engine.
func (k *keepers) checkNotSent(when string, p *gateway.Process, key, id string, right func(got rig.Reply) bool) {
	k.T.Helper()
	before := k.engines[0].received() + k.engines[1].received()
	for _, q := range k.requestsAbout(id) {
		got := k.do(p, key, q.method, q.path, q.body)
		if !right(got) {
			k.T.Errorf("%s, %s %s %s: %d %s", when, q.method, q.path, q.body, got.Status, got.Body)
		}
	}
	if n := k.engines[0].received() + k.engines[1].received() - before; n != 0 {
		k.T.Errorf("%s, the engines got %d requests about %s", when, n, id)
	}
}

type request struct{ method, path, body string }

// requestsAbout returns requests that read or continue an object.
func (k *keepers) requestsAbout(id string) []request {
	if strings.HasPrefix(id, "conv") {
		return []request{
			{"GET", "/v1/conversations/" + id, ""}, {"GET", "/v1/conversations/" + id + "/items", ""},
			{"POST", "/v1/responses", `{"model":"agent","input":"go on","conversation":"` + id + `"}`},
		}
	}
	return []request{
		{"GET", "/v1/responses/" + id, ""}, {"GET", "/v1/responses/" + id + "/input_items", ""},
		{"POST", "/v1/responses/" + id + "/cancel", ""},
		{"POST", "/v1/responses", `{"model":"sim","input":"go on","previous_response_id":"` + id + `"}`},
	}
}

// TestStoredResponsesSurviveARedisOutage: without Redis, each gateway uses what it knows. Other requests get 503 with
// Retry-After, because another gateway may know the response. Afterwards all gateways know all responses, although
// Redis has lost everything.
//
// RS-01, RS-02.
func TestStoredResponsesSurviveARedisOutage(t *testing.T) {
	for name, way := range map[string]struct{ away, back func(*backends.RedisServer) }{
		"killed": {(*backends.RedisServer).Kill, (*backends.RedisServer).Restart},
		"hung":   {(*backends.RedisServer).Hang, (*backends.RedisServer).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := backends.Redis(t)
			k := newKeepers(t, redis)
			k.own["store"] = hastyStores("", redis.URL)
			a, b := k.serve(k.own), k.serve(k.own)
			both := func(up float64) {
				waitForMetric(t, a, "tierway_redis_up", up, rig.Patience)
				waitForMetric(t, b, "tierway_redis_up", up, rig.Patience)
			}
			both(1)
			before, beforeAt := k.createResponse(a)
			k.checkFound("at first", b, before, beforeAt)

			way.away(redis)
			for range 20 { // no request fails while the outage is found
				k.checkFound("when Redis goes", a, before, beforeAt)
			}
			both(0)
			during, duringAt := k.createResponse(a)
			conversation, conversationAt := k.create(a, "/v1/conversations", `{}`)
			for id, engine := range map[string]string{before: beforeAt, during: duringAt, conversation: conversationAt} {
				k.checkFound("without Redis", a, id, engine)
				k.checkMissing("without Redis for another tenant", a, evilKey, id)
			}
			k.checkNotSent("without Redis at the other gateway", b, rig.TenantKey, during, func(got rig.Reply) bool {
				return got.CheckRefusal(http.StatusServiceUnavailable, "stored_response_unavailable") == nil
			})

			way.back(redis)
			both(1)
			for id, engine := range map[string]string{before: beforeAt, during: duringAt, conversation: conversationAt} {
				rig.Eventually(t, func() error { // until Redis has what a wrote during the outage
					q := k.requestsAbout(id)[0]
					for range 2 { // one of two requests goes to each engine if the gateway has no entry of the id
						got := k.do(b, rig.TenantKey, q.method, q.path, q.body)
						if got.Status != http.StatusOK || !strings.Contains(got.Body, `"engine":"`+engine+`"`) {
							return errorf("%s is %d at the other gateway: %s", id, got.Status, got.Body)
						}
					}
					return nil
				})
				k.checkFound("with Redis again", b, id, engine)
				k.checkMissing("with Redis again for another tenant", b, evilKey, id)
			}
		})
	}
}
