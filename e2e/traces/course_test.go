package traces

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines/chaos"
)

func TestARetryIsTwoAttempts(t *testing.T) {
	r := newRig(t, 2)
	if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Status, Status: 500}); err != nil {
		t.Fatal(err)
	}
	r.traced("")
	var tr tree
	for i := range 20 { // which worker is asked first is chance
		id := fmt.Sprintf("retry-%d", i)
		if status, _ := r.ask(id, body(fmt.Sprintf("%d %s", i, prompt), true)); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		if tr = r.collector.request(id, 1); tr.root.attrs["tierway.attempts"] == "2" {
			break
		}
	}
	calls, routes := tr.named("chat sim"), tr.named("route")
	if len(calls) != 2 || len(routes) != 2 {
		t.Fatalf("a retry is told by %q", tr.names())
	}
	tr.checkNesting()
	tr.wantAttrs(tr.root, map[string]string{"tierway.attempts": "2", "tierway.worker": "w1", "tierway.outcome": "ok",
		"error.type": ""})
	tr.wantAttrs(calls[0], map[string]string{"error.type": "500", "http.response.status_code": "500",
		"tierway.worker": "w0", "tierway.attempt": "1"})
	tr.wantAttrs(calls[1], map[string]string{"error.type": "", "http.response.status_code": "200", "tierway.worker": "w1",
		"tierway.attempt": "2"})
	if !calls[0].failed || calls[1].failed || tr.root.failed || calls[0].id == calls[1].id {
		t.Errorf("failed: %v, %v, the request %v; ids %s, %s", calls[0].failed, calls[1].failed, tr.root.failed, calls[0].id,
			calls[1].id)
	}
	if engine := tr.one("llm_request"); engine.parent != calls[1].id {
		t.Errorf("the engine's parent is %q, not the attempt that reached it", engine.parent)
	}
	if n := len(routes[0].events); n != 2 {
		t.Errorf("the first choice tells of %d candidates", n)
	}
}

func TestAWaitInTheQueueIsASpan(t *testing.T) {
	r := newRig(t, 1)
	r.traced("max_inflight: 1")
	var asked sync.WaitGroup
	asked.Go(func() { r.ask("first", body(rig.PauseMark, true)) })
	rig.Eventually(t, func() error {
		if n := r.Workers[0].Engine.Stats().Running; n != 1 {
			return fmt.Errorf("%d requests run", n)
		}
		return nil
	})
	asked.Go(func() { r.ask("second", body(prompt, true)) })
	rig.Eventually(t, func() error {
		if r.Sum("tierway_queue_depth") != 1 {
			return errors.New("no request waits")
		}
		return nil
	})
	r.ResumePaused()
	asked.Wait()
	tr := r.collector.request("second", 1)
	tr.checkNesting()
	queue, route, call := tr.one("queue"), tr.one("route"), tr.one("chat sim")
	tr.wantAttrs(queue, map[string]string{"tierway.tier": "small", "tierway.class": "interactive", "tierway.attempt": "1"})
	if !queue.end.After(queue.start) || queue.end.After(route.end) || route.end.After(call.start) {
		t.Errorf("the wait lasts from %v to %v, the choice ends at %v, the attempt begins at %v", queue.start, queue.end,
			route.end, call.start)
	}
	if first := r.collector.request("first", 1); len(first.named("queue")) != 0 {
		t.Error("a request that did not wait has a queue span")
	}
}

func TestARefusedRequestIsASpan(t *testing.T) {
	r := newRig(t, 1)
	r.traced("")
	if status, _ := r.ask("good", body(prompt, false), "Authorization", "Bearer "+limitedKey); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	for _, c := range []struct {
		id, body, key  string
		status         int
		tenant, model  string
		limit, outcome string
		known          bool
	}{
		{id: "no-key", body: body(prompt, false), key: "", status: 401},
		{id: "bad-key", body: body(prompt, false), key: "Bearer wrong", status: 401},
		{id: "no-model", body: `{"model":"nobody","messages":[{"role":"user","content":"x"}]}`,
			key: "Bearer " + rig.TenantKey, status: 404, tenant: "acme", model: "other", known: true},
		{id: "no-json", body: `{"model":`, key: "Bearer " + rig.TenantKey, status: 400, tenant: "acme", known: true},
		{id: "too-many", body: body(prompt, false), key: "Bearer " + limitedKey, status: 429, tenant: "slow", model: "auto",
			limit: "rpm", known: true},
	} {
		status, _ := r.ask(c.id, c.body, "Authorization", c.key, "Traceparent", sampled)
		if status != c.status {
			t.Errorf("%s: status %d, want %d", c.id, status, c.status)
		}
		tr := r.collector.request(c.id, 0)
		tr.wantAttrs(tr.root, map[string]string{"http.response.status_code": fmt.Sprint(c.status), "error.type": "",
			"tierway.outcome": "refused",
			"tierway.tenant":  c.tenant, "tierway.limit": c.limit, "gen_ai.request.model": c.model, "tierway.attempts": "0"})
		if tr.root.failed || tr.root.attrs["tierway.code"] == "" {
			t.Errorf("%s: failed %v, code %q", c.id, tr.root.failed, tr.root.attrs["tierway.code"])
		}
		// OB-07: a request without a valid key does not join its caller's trace.
		if known := tr.root.trace == callerTrace; known != c.known {
			t.Errorf("%s: in its caller's trace: %v, want %v", c.id, known, c.known)
		}
	}
}

func TestAFailedRequestIsAFailedSpan(t *testing.T) {
	r := newRig(t, 1)
	if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Reset}); err != nil {
		t.Fatal(err)
	}
	r.traced("")
	status, _ := r.ask("failed", body(prompt, false))
	tr := r.collector.request("failed", 0)
	tr.wantAttrs(tr.root, map[string]string{"http.response.status_code": fmt.Sprint(status), "tierway.outcome": "failed",
		"error.type": tr.root.attrs["tierway.code"]})
	calls := tr.named("chat sim")
	if status < 500 || !tr.root.failed || len(calls) == 0 || !calls[0].failed || calls[0].attrs["error.type"] == "" {
		t.Errorf("status %d, failed %v, attempts %+v", status, tr.root.failed, calls)
	}
}

// OB-07: the sampled flag counts only for requests with a valid key.
func TestOnlyTrustedCallersDecideTheSampling(t *testing.T) {
	r := newRig(t, 1)
	r.serve("otlp: "+r.collector.URL+", sample: 0", "")
	r.ask("unasked", body(prompt, false))
	r.ask("unwanted", body(prompt, false), "Traceparent", unsampled)
	r.ask("unknown", body(prompt, false), "Traceparent", sampled, "Authorization", "Bearer wrong")
	r.ask("wanted", body(prompt, false), "Traceparent", sampled)
	r.collector.request("wanted", 1)
	var got []string
	for _, s := range r.collector.all() {
		if id := s.attrs["tierway.request_id"]; id != "" {
			got = append(got, id)
		}
	}
	if len(got) != 1 || got[0] != "wanted" {
		t.Errorf("exported are %q", got)
	}
	for i, want := range []string{"00", "00", "01"} {
		h := r.Workers[0].Recorder.Requests()[i].Header.Get("Traceparent")
		if len(h) != 55 || h[53:] != want {
			t.Errorf("the engine's request %d has the traceparent %q, want the flag %s", i, h, want)
		}
	}
}

func TestLinkedRequestHasItsOwnTrace(t *testing.T) {
	r := newRig(t, 1)
	r.serve("otlp: "+r.collector.URL+", clients: link", "")
	r.ask("linked", body(prompt, true), "Traceparent", unsampled, "Tracestate", "vendor=1")
	tr := r.collector.request("linked", 1)
	tr.checkNesting()
	if tr.root.trace == callerTrace || tr.root.parent != "" || len(tr.root.links) != 1 || tr.root.links[0] != callerTrace+
		":"+callerSpan {
		t.Errorf("the request's span is %+v", tr.root)
	}
	if got := r.Workers[0].Recorder.Requests()[0].Header; got.Get("Tracestate") != "" ||
		tr.one("llm_request").trace != tr.root.trace {
		t.Errorf("the engine got the caller's tracestate %q or another trace", got.Get("Tracestate"))
	}
}
