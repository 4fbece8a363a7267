package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"

	"tierway/memnet/memredis"
)

// redisStore is the section of a gateway that uses the Redis of withRedis and waits for it as long as it takes.
const redisStore = `store: { sql: "", redis: "redis://redis:6379", redis_timeout: 1m }`

// sharedStore starts a Redis in the network of the test and returns the section of gateways that share it.
func sharedStore(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("store: { sql: \"\", redis: %q, redis_timeout: 1m }", memredis.Start(t, networkOf(t).Network).URL)
}

// withRedis returns a change of options after which the address redis:6379 leads to m.
func withRedis(m *miniredis.Miniredis) func(*Options) {
	return func(o *Options) {
		dial := o.Dial
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "redis:6379" {
				return m.Dial()
			}
			return dial(ctx, network, address)
		}
	}
}

// TestAFailedLookUpIsNotAMiss: if Redis does not answer, requests about a response that this gateway does not know get
// 503 and can be retried, as long as the outage lasts. The gateway that knows the response serves it.
func TestAFailedLookUpIsNotAMiss(t *testing.T) {
	for name, begin := range map[string]func(*memredis.Server){
		"loading": func(s *memredis.Server) { s.SetError("LOADING Redis is loading the dataset in memory") },
		"hung":    (*memredis.Server).Hang,
		"killed":  (*memredis.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkFailedLookUps(t, begin) })
		})
	}
}

// checkFailedLookUps sends requests about stored responses before and during an outage of Redis.
func checkFailedLookUps(t *testing.T, beginOutage func(*memredis.Server)) {
	t.Helper()
	redis := memredis.Start(t, networkOf(t).Network)
	stores := [2]*storingEngine{{name: "a"}, {name: "b"}}
	yaml := fmt.Sprintf(storedYAML, true, startServer(t, stores[0]), startServer(t, stores[1]),
		fmt.Sprintf("store: { sql: \"\", redis: %q }", redis.URL)) + "# %s\n"
	own, other := newRig(t, yaml), newRig(t, yaml)
	created := own.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", allKey)
	id := "resp_a1"
	if created.status != http.StatusOK || !strings.Contains(created.body, id) {
		t.Fatalf("%d %s", created.status, created.body)
	}
	requests := []struct{ method, path, body string }{
		{"GET", "/v1/responses/" + id, ""}, {"GET", "/v1/responses/" + id + "/input_items", ""},
		{"POST", "/v1/responses/" + id + "/cancel", ""},
		{"POST", "/v1/responses", `{"model":"small","input":"hi","previous_response_id":"` + id + `"}`},
	}
	check := func(state string, r *rig, id string, want int, code string) {
		t.Helper()
		for _, q := range requests {
			path, body := strings.Replace(q.path, "resp_a1", id, 1), strings.Replace(q.body, "resp_a1", id, 1)
			before := requestCount(stores)
			a := r.do(q.method, path, body, "Authorization", allKey)
			sent := requestCount(stores) > before
			if a.status != want || !strings.Contains(a.body, code) || sent != (want == http.StatusOK) {
				t.Errorf("%s: %s %s: %d %s", state, q.method, path, a.status, a.body)
			}
			retry := a.header.Get("Retry-After") == "1" && a.header.Get("Retry-After-Ms") == "1000"
			if retry != (want == http.StatusServiceUnavailable) {
				t.Errorf("%s: %s %s: the header is %v", state, q.method, path, a.header)
			}
		}
	}
	check("with Redis", other, id, http.StatusOK, "")
	check("with Redis, unknown", other, "resp_x1", http.StatusNotFound, "_not_found")
	beginOutage(redis)
	for range 3 { // first its commands fail, then Redis is not asked any more
		check("in an outage", other, id, http.StatusServiceUnavailable, "stored_response_unavailable")
	}
	check("in an outage, at the gateway that created it", own, id, http.StatusOK, "")
	check("in an outage, unknown", own, "resp_x1", http.StatusServiceUnavailable, "stored_response_unavailable")
}

// TestAFailedLookUpOfAConversationIsNotAMiss: in a pool of one tenant an unknown conversation may be at any worker.
// Only a pool of one worker serves it without Redis.
func TestAFailedLookUpOfAConversationIsNotAMiss(t *testing.T) {
	for _, single := range []bool{false, true} {
		mini := miniredis.NewMiniRedis()
		t.Cleanup(mini.Close)
		engines := [3]*conversationEngine{{name: "s"}, {name: "a"}, {name: "b"}}
		yaml := conversationYAML(true, "tenant: all,", startServer(t, engines[0]), startServer(t, engines[1]),
			startServer(t, engines[2])) + redisStore + "\n# %s\n"
		if single {
			const another = " ] }\n  - { name: spare, models: [spare], serves: [chat], workers: [ { name: w1,"
			yaml = strings.Replace(yaml, ", { name: w1,", another, 1)
		}
		own, other := newRigWith(t, yaml, withRedis(mini)), newRigWith(t, yaml, withRedis(mini))
		created := own.post("/v1/conversations", `{}`, "Authorization", allKey)
		if created.status != http.StatusOK {
			t.Fatalf("%d %s", created.status, created.body)
		}
		id := strings.TrimSuffix(created.body[strings.LastIndex(created.body, "conv_"):], `"}`)
		mini.SetError("LOADING Redis is loading the dataset in memory")
		for _, q := range []struct{ method, path, body string }{
			{"GET", "/v1/conversations/" + id, ""}, {"POST", "/v1/conversations/" + id + "/items", `{"items":[]}`},
			{"POST", "/v1/responses", `{"model":"agent","input":"hi","conversation":"` + id + `"}`},
		} {
			if a := own.do(q.method, q.path, q.body, "Authorization", allKey); a.status != http.StatusOK {
				t.Errorf("at the gateway that created it: %s %s: %d %s", q.method, q.path, a.status, a.body)
			}
			a := other.do(q.method, q.path, q.body, "Authorization", allKey)
			refused := a.status == http.StatusServiceUnavailable && strings.Contains(a.body, "stored_response_unavailable") &&
				a.header.Get("Retry-After") == "1"
			if refused == single || single && a.status != http.StatusOK {
				t.Errorf("single %v: %s %s: %d %s", single, q.method, q.path, a.status, a.body)
			}
		}
	}
}

// TestStoredObjectsAreSharedByAllGateways: what one gateway has relayed is found through every gateway, also
// through one that starts later, for its tenant only. A deletion through one gateway applies to all.
func TestStoredObjectsAreSharedByAllGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := sharedStore(t)
		agents := [3]*conversationEngine{{name: "s"}, {name: "a"}, {name: "b"}}
		for what, c := range map[string]struct{ yaml, path, body, follow string }{
			"a response": {fmt.Sprintf(storedYAML, true, startServer(t, &storingEngine{name: "a"}),
				startServer(t, &storingEngine{name: "b"}), redis),
				"/v1/responses", `{"model":"small","input":"hi"}`, `{"model":"small","input":"more","previous_response_id":%q}`},
			"a conversation": {conversationYAML(true, "tenant: all,", startServer(t, agents[0]), startServer(t, agents[1]),
				startServer(t, agents[2])) + redis,
				"/v1/conversations", "{}", `{"model":"agent","input":"more","conversation":%q}`},
		} {
			start := func() *rig { return newRig(t, c.yaml+"\n# %s\n") }
			all := []*rig{start(), start()}
			made := all[0].post(c.path, c.body, "Authorization", allKey)
			home, id := made.header.Get("X-Routed-To"), made.body[strings.LastIndex(made.body, `"id":"`)+len(`"id":"`):]
			id, _, _ = strings.Cut(id, `"`)
			all = append(all, start())
			for i, r := range all {
				for range 2 { // round_robin would use both workers
					for _, q := range [][3]string{{"GET", c.path + "/" + id, ""},
						{"POST", "/v1/responses", fmt.Sprintf(c.follow, id)}} {
						a := r.do(q[0], q[1], q[2], "Authorization", allKey)
						if a.status != http.StatusOK || a.header.Get("X-Routed-To") != home {
							t.Errorf("%s at gateway %d: %s %s: %d from %q: %s", what, i, q[0], q[1], a.status,
								a.header.Get("X-Routed-To"), a.body)
						}
						if a := r.do(q[0], q[1], q[2], "Authorization", fewKey); a.status != http.StatusNotFound {
							t.Errorf("%s of another tenant at gateway %d: %s %s: %d", what, i, q[0], q[1], a.status)
						}
					}
				}
			}
			for key, want := range map[string]int{fewKey: http.StatusNotFound, allKey: http.StatusOK} {
				if a := all[1].do("DELETE", c.path+"/"+id, "", "Authorization", key); a.status != want {
					t.Errorf("the deletion of %s is %d, want %d: %s", what, a.status, want, a.body)
				}
			}
			for i, r := range all {
				waitUntil(t, fmt.Sprintf("the end of %s at gateway %d", what, i), func() bool {
					return r.do("GET", c.path+"/"+id, "", "Authorization", allKey).status == http.StatusNotFound
				})
				if strings.Contains(r.logs.String(), id) {
					t.Errorf("the log of gateway %d has the id of %s", i, what)
				}
			}
		}
	})
}

// TestAnotherFleetsResponseIsNotContinued: its tenant, pool and worker have the same names, and the worker has another
// URL.
func TestAnotherFleetsResponseIsNotContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := sharedStore(t)
		fleet := func(names ...string) *rig {
			return newRig(t, fmt.Sprintf(storedYAML, true, startServer(t, &storingEngine{name: names[0]}),
				startServer(t, &storingEngine{name: names[1]}), redis)+"\n# %s\n")
		}
		own, other := fleet("a", "b"), fleet("c", "d")
		made := own.post("/v1/responses", `{"model":"small","input":"hi"}`, "Authorization", allKey)
		id := made.body[strings.LastIndex(made.body, `"id":"`)+len(`"id":"`):]
		id, _, _ = strings.Cut(id, `"`)
		for r, want := range map[*rig]int{own: http.StatusOK, other: http.StatusNotFound} {
			for _, q := range [][3]string{{"GET", "/v1/responses/" + id, ""},
				{"POST", "/v1/responses", fmt.Sprintf(followUp, id)}} {
				if a := r.do(q[0], q[1], q[2], "Authorization", allKey); a.status != want {
					t.Errorf("own fleet %v: %s %s: %d: %s", r == own, q[0], q[1], a.status, a.body)
				}
			}
		}
	})
}

// TestAFailedLookUpSendsNoRequestToAnotherWorker: a follow-up that names no tier goes to the tier of its response, so
// without Redis it goes nowhere. Only if one worker may have the response, it is served. Without keys each pool counts
// as private.
func TestAFailedLookUpSendsNoRequestToAnotherWorker(t *testing.T) {
	const keyless = "auth: { required: false }\nhealth: { path: \"off\" }\n" + redisStore + "\n"
	small, large := "  - { name: small, model: fake-7b, workers: [ { name: w0, url: %q } ] }\n",
		"  - { name: large, model: fake-70b, workers: [ { name: w1, url: %q } ] }\n"
	chat := strings.Replace(large, "workers", "serves: [chat], workers", 1)
	const paths = "pools: [ { name: rest, paths: [\"/openai/*\"], workers: [ { name: w1, url: %q } ] } ]\n"
	for name, c := range map[string]struct {
		yaml    string
		model   string // of the response
		follows string // the model of the follow-up
		holder  string // X-Routed-To of the follow-up with Redis
		served  bool   // without Redis
	}{
		"two tiers, classified": {"tiers:\n" + small + large, "large", "auto", "w1", false},
		"two tiers, no model":   {"tiers:\n" + small + large, "large", "", "w1", false},
		"two tiers, named":      {"tiers:\n" + small + large, "large", "large", "w1", false},
		"the default serves chat only": {"classifier: { preset: none, default: large }\ntiers:\n" + small + chat, "small",
			"auto", "w0", false},
		"a pool of paths":            {"tiers:\n" + small + paths, "small", "auto", "w0", false},
		"the other serves chat only": {"tiers:\n" + small + chat, "small", "auto", "w0", true},
		"one worker":                 {"tiers:\n" + small + "# %s\n", "small", "auto", "w0", true},
	} {
		t.Run(name, func(t *testing.T) {
			mini := miniredis.NewMiniRedis()
			t.Cleanup(mini.Close)
			stores := [2]*storingEngine{{name: "a"}, {name: "b"}}
			yaml := fmt.Sprintf(keyless+c.yaml, startServer(t, stores[0]), startServer(t, stores[1])) + "# %s\n"
			own, other := newRigWith(t, yaml, withRedis(mini)), newRigWith(t, yaml, withRedis(mini))
			created := own.post("/v1/responses", `{"model":"`+c.model+`","input":"hi"}`)
			id := map[string]string{"w0": "resp_a1", "w1": "resp_b1"}[c.holder]
			if created.status != http.StatusOK || !strings.Contains(created.body, id) {
				t.Fatalf("%d %s", created.status, created.body)
			}
			body := fmt.Sprintf(`{"model":%q,"input":"go on","previous_response_id":%q}`, c.follows, id)
			if c.follows == "" {
				body = strings.Replace(body, `"model":"",`, "", 1)
			}
			for i, served := range []bool{true, c.served} {
				state := []string{"", "LOADING Redis is loading the dataset in memory"}[i]
				mini.SetError(state)
				before := requestCount(stores)
				a := other.post("/v1/responses", body)
				sent := requestCount(stores) > before
				switch {
				case sent != served:
					t.Errorf("error %q: sent %v: %d %s", state, sent, a.status, a.body)
				case served && (a.status != http.StatusOK || a.header.Get("X-Routed-To") != c.holder):
					t.Errorf("error %q: %d from %q: %s", state, a.status, a.header.Get("X-Routed-To"), a.body)
				case !served && (a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" ||
					!strings.Contains(a.body, "stored_response_unavailable")):
					t.Errorf("error %q: %d %s", state, a.status, a.body)
				}
			}
		})
	}
}
