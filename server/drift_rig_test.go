package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tierway/config"
	"tierway/engines"
	"tierway/fixedseed"
	"tierway/routing"
	"tierway/server/admin"
	"tierway/telemetry"
)

// driftRig is a gateway with one tier per policy, a pool and three tenants. The test controls its
// random numbers. Its admin plane is called without a socket.
type driftRig struct {
	*adminRig
	chance  atomic.Uint64 // the next random number; 0: one of others
	others  func() uint64
	engines []string // URLs, four of each tier and of the pool
}

// random is the gateway's source of random numbers.
func (r *driftRig) random() uint64 {
	if n := r.chance.Load(); n != 0 {
		return n
	}
	return r.others()
}

// driftPolicies are the policies of the tiers, the least capable tier first.
var driftPolicies = []string{
	"{ name: chwbl }", "{ name: least_load }", "{ name: power_of_two }", "{ name: random }", "{ name: round_robin }",
	"{ name: weighted_round_robin }",
}

// driftTiers are the tiers' names, in order.
var driftTiers = []string{"one", "two", "three", "four", "five", "six"}

// driftTenants are the tenants. Their keys are their names.
var driftTenants = []string{"acme", "beta", "gamma"}

// driftHead is the part of the configuration that drafts do not change.
func driftHead() string {
	var b strings.Builder
	fmt.Fprintf(&b, "store: { sql: %q }\nhealth: { path: \"off\" }\n", memoryDB)
	fmt.Fprintf(&b, "admin: { keys: [ { name: ops, sha256: %s }, { name: eyes, sha256: %s, role: viewer } ] }\n",
		digestHex("ops"), digestHex("eyes"))
	b.WriteString("auth:\n  keys:\n")
	for i, name := range driftTenants {
		fmt.Fprintf(&b, "    - { name: %s, sha256: %s%s }\n", name, digestHex(name),
			[]string{"", ", tiers: [one, two, three, five, vectors], limits: { rpm: 100000, tpm: 100000000, concurrent: 1000 }",
				", default_priority: background, isolate_cache: true"}[i])
	}
	return b.String()
}

// driftConfig is the rig's configuration. engine makes the engine of each worker.
func driftConfig(t *testing.T, more string, engine func(tier string, i int) http.Handler) string {
	t.Helper()
	var b strings.Builder
	workers := func(tier string) string {
		var list []string
		for i := range 4 {
			list = append(list, fmt.Sprintf("{ name: %s-%d, url: %q, weight: %d, max_inflight: 6 }", tier, i,
				startServer(t, engine(tier, i)), 1+i))
		}
		return strings.Join(list, ", ")
	}
	b.WriteString(driftHead())
	b.WriteString("tiers:\n")
	for i, policy := range driftPolicies {
		fmt.Fprintf(&b, "  - { name: %s, model: %s-model, context: %d, policy: %s, workers: [ %s ] }\n", driftTiers[i],
			driftTiers[i], 4000<<i, policy, workers(driftTiers[i]))
	}
	fmt.Fprintf(&b, "pools:\n  - { name: vectors, model: bge, serves: [embeddings], policy: { name: chwbl, no_key: "+
		"model_hash }, workers: [ %s ] }\n", workers("vectors"))
	b.WriteString("classifier: { prompt_tokens: { two: 300, three: 700, four: 1500, five: 4000 }, max_tokens: { two: " +
		"300, six: 3000 } }\n")
	b.WriteString("models: { \"gpt-4*\": three, \"gpt-5\": four, \"best\": classify, \"text-*\": vectors, " +
		"\"listed\": [one, vectors, three, two] }\n")
	b.WriteString(more)
	return b.String()
}

// newDriftRig serves driftConfig.
func newDriftRig(t *testing.T, more string, engine func(tier string, i int) http.Handler) *driftRig {
	t.Helper()
	text := driftConfig(t, more, engine)
	file, err := config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	d := &driftRig{others: fixedseed.Uint64()}
	for _, s := range file.Specs() {
		d.engines = append(d.engines, s.URL)
	}
	r := &rig{t: t, text: text, net: networkOf(t), access: &logBuffer{}}
	r.Server, err = New(Options{Config: file, Source: r.readSource, Log: slog.New(slog.DiscardHandler), Access: r.access,
		Metrics: telemetry.New("test"), Rand: d.random, Listen: r.net.Listen, Dial: r.net.Dial})
	if err != nil {
		t.Fatal(err)
	}
	front := newServer(t, r.planes.dataHandler())
	r.url = front.URL
	d.adminRig = adminRigOf(r)
	t.Cleanup(func() {
		front.Close()
		r.close()
		if left := r.Inflight(); left != 0 {
			t.Errorf("%d requests are still in flight", left)
		}
	})
	return d
}

// randomRequest is one request of a tenant.
type randomRequest struct {
	tenant, path, body string
	header             http.Header
}

// sent sends the request and returns its answer.
func (r *driftRig) sent(w randomRequest) httpAnswer {
	r.t.Helper()
	headers := []string{"Authorization", "Bearer " + w.tenant}
	for name := range w.header {
		headers = append(headers, name, w.header.Get(name))
	}
	return r.post(w.path, w.body, headers...)
}

// order is the body that explains the request, with further fields.
func (w randomRequest) order(more map[string]any) string {
	headers := map[string]string{}
	for name := range w.header {
		headers[name] = w.header.Get(name)
	}
	order := map[string]any{"tenant": w.tenant, "key_id": "config-" + keyID(w.tenant), "path": w.path, "headers": headers,
		"request": json.RawMessage(w.body)}
	for k, v := range more {
		order[k] = v
	}
	text, err := json.Marshal(order)
	if err != nil {
		panic(err) // maps of text always marshal
	}
	return string(text)
}

// keyID is the part of the ID of a key of config.yaml that depends on the key.
func keyID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:4])
}

// explainRequest returns the admin API's explanation of the request.
func (r *driftRig) explainRequest(w randomRequest) admin.RouteExplanation {
	r.t.Helper()
	return decode[admin.RouteExplanation](r.t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain",
		w.order(nil)))
}

// driftWorld draws requests: chats of all lengths with shared beginnings. Header, name, alias or
// content select their tier.
type driftWorld struct {
	*rand.Rand
	chats []string // the messages of chats that can continue
}

func newDriftWorld(seed uint64) *driftWorld { return &driftWorld{Rand: rand.New(rand.NewPCG(seed, 1))} }

// pick draws one of the values.
func (d *driftWorld) pick(of ...string) string { return of[d.IntN(len(of))] }

// words is a text of about n tokens.
func (d *driftWorld) words(n int) string {
	var b strings.Builder
	for b.Len() < 4*n {
		b.WriteString(d.pick("the garden ", "needs some water ", "in spring ", "and then it rains ", "for a week "))
	}
	return b.String()
}

// drawRequest draws the next request.
func (d *driftWorld) drawRequest() randomRequest {
	w := randomRequest{tenant: d.pick(driftTenants...), path: "/v1/chat/completions", header: http.Header{}}
	if d.IntN(10) == 0 {
		w.path, w.body = "/v1/embeddings", fmt.Sprintf(`{"model":%q,"input":%q}`, d.pick("bge", "text-embed"), d.words(20))
		return w
	}
	if d.IntN(12) == 0 {
		w.header.Set("X-Model-Tier", d.pick(append([]string{"nowhere"}, driftTiers...)...))
	}
	if d.IntN(10) == 0 {
		w.header.Set("X-Session-ID", fmt.Sprint("s", d.IntN(5)))
	}
	if d.IntN(10) == 0 {
		w.header.Set("X-Request-Priority", d.pick("interactive", "background", "batch"))
	}
	model := d.pick(append([]string{"auto", "auto", "auto", "best", "gpt-4o", "gpt-5", "listed", "one-model",
		"six-model", "two",
		"unknown-model"}, driftTiers...)...)
	more := ""
	if d.IntN(3) == 0 {
		more = fmt.Sprintf(`,"max_tokens":%d`, []int{16, 200, 400, 1024, 3500, 5000}[d.IntN(6)])
	}
	if d.IntN(6) == 0 {
		more += chatTool
	}
	w.body = fmt.Sprintf(`{"model":%q,"messages":[%s]%s}`, model, d.chat(), more)
	return w
}

// chat is the messages of a new chat or of the next turn of an old one.
func (d *driftWorld) chat() string {
	turn := func() string {
		n := []int{5, 20, 100, 400, 900, 2000, 6000}[d.IntN(7)]
		text := d.words(n)
		if d.IntN(6) == 0 {
			text = "Implement a function in Python that sorts a list. " + text
		}
		return fmt.Sprintf(`{"role":"user","content":%q}`, text)
	}
	if len(d.chats) < 12 {
		d.chats = append(d.chats, fmt.Sprintf(`{"role":"system","content":%q},`, "You are assistant "+d.pick("A", "B")+". "+
			d.words(200))+turn())
		return d.chats[len(d.chats)-1]
	}
	at := d.IntN(len(d.chats))
	if len(d.chats[at]) > 30_000 {
		d.chats[at] = turn()
		return d.chats[at]
	}
	d.chats[at] += `,{"role":"assistant","content":"It is so."},` + turn()
	return d.chats[at]
}

// quick is an engine that answers without delay.
func quick(tier string, i int) http.Handler {
	return engines.New(engines.Config{Name: fmt.Sprint(tier, i), AnyModel: true, Seed: uint64(i) + 1,
		CacheTokens: 1 << 20})
}

// loads holds leases of a pool, as requests in flight do.
type loads struct {
	leases []*routing.Lease
}

// shake occupies or releases some slots of the pool.
func (l *loads) shake(d *driftWorld, p *routing.Pool) {
	for range d.IntN(4) {
		if len(l.leases) > 0 && d.IntN(5) < 2 {
			at := d.IntN(len(l.leases))
			l.leases[at].Release(routing.Result{Err: routing.ErrExcluded})
			l.leases = append(l.leases[:at], l.leases[at+1:]...)
			continue
		}
		r := routing.Request{Now: time.Now(), Rand: d.Uint64(), PromptTokens: int64(d.IntN(9000)),
			OutputTokens: int64(d.IntN(800)), Stream: true}
		if lease, err := p.Acquire(&r); err == nil {
			l.leases = append(l.leases, &lease)
		}
	}
}

// releaseAll releases all slots.
func (l *loads) releaseAll() {
	for _, lease := range l.leases {
		lease.Release(routing.Result{Err: routing.ErrExcluded})
	}
	l.leases = nil
}
