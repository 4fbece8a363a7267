package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/decisions"
)

// TestEarlyRejectionsAreExplained: rejections before a request is routed.
func TestEarlyRejectionsAreExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := rawRig(t, "vllm")
		const chat = `{"model":"fake-7b","messages":[{"role":"user","content":"hi"}]}`
		for _, c := range []struct{ path, body, header, value, code, stage string }{
			{"/raw/x", "{}", "Upgrade", "websocket", "websocket_not_supported", decisions.StageRequest},
			{"/v1/chat/completions", chat, "Upgrade", "websocket", "websocket_not_supported", decisions.StageRequest},
			{"/v1/chat/completions", chat, "Via", "1.1 " + r.name, "loop_detected", decisions.StageAuth},
			{"/readyz", "{}", "", "", "method_not_allowed", decisions.StageRequest},
			{"/v1/models", "{}", "", "", "method_not_allowed", decisions.StageRequest},
		} {
			q := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set(c.header, c.value)
			e := r.Explain(q)
			last := e.Steps[len(e.Steps)-1]
			if e.Outcome != decisions.WouldReject || e.Code != c.code || last.Stage != c.stage || last.OK {
				t.Errorf("%s with %s: %s %s at %s", c.path, c.header, e.Outcome, e.Code, last.Stage)
			}
		}
	})
}

// TestKeylessRequestsAreExplainedAsServed: if no key is required, requests from pages of other sites
// and with foreign hosts are rejected.
func TestKeylessRequestsAreExplainedAsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine())
		for name, c := range map[string]struct{ host, site, code string }{
			"no browser":        {"localhost", "", ""},
			"a page of another": {"localhost", "cross-site", "cross_site_request"},
			"a foreign name":    {"example.com", "", "host_not_allowed"},
		} {
			q := httptest.NewRequest(http.MethodPost, "/v1/chat/completions",
				strings.NewReader(`{"model":"fake-7b","messages":[{"role":"user","content":"hi"}]}`))
			q.Header.Set("Content-Type", "application/json")
			q.Host = c.host
			if c.site != "" {
				q.Header.Set("Sec-Fetch-Site", c.site)
			}
			if e := r.Explain(q); e.Code != c.code {
				t.Errorf("%s: explained as %s %q, want %q", name, e.Outcome, e.Code, c.code)
			}
		}
	})
}

// panicking is a body that panics after left bytes.
type panicking struct{ left int }

// Read is part of io.Reader.
func (p *panicking) Read(b []byte) (int, error) {
	if p.left <= 0 {
		panic("the prompt")
	}
	n := min(p.left, len(b))
	for i := range b[:n] {
		b[i] = ' '
	}
	p.left -= n
	return n, nil
}

// TestAPanicInExplainFreesItsMemory and is reported as an internal error.
func TestAPanicInExplainFreesItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine())
		q := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", &panicking{left: 1 << 20})
		q.ContentLength, q.Host = 2<<20, "localhost"
		if e := r.Explain(q); e.Outcome != decisions.WouldReject || e.Code != "internal_error" {
			t.Errorf("%s %s", e.Outcome, e.Code)
		}
		if used := r.proxy.BodyMemory().Used; used != 0 {
			t.Errorf("%d bytes are in use", used)
		}
	})
}

// TestATooLongPromptIsExplainedWithItsSignals although no tier is selected.
func TestATooLongPromptIsExplainedWithItsSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(plain, "model: fake-7b", "model: fake-7b\n    context: 50", 1), fakeEngine())
		body := `{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat("some words and others ", 400) +
			`"}]}`
		q := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		q.Host = "localhost"
		q.Header.Set("Content-Type", "application/json")
		e := r.Explain(q)
		last := e.Steps[len(e.Steps)-1]
		if e.Code != "context_length_exceeded" || e.Classified == nil || last.Tier == nil || len(last.Tier.Signals) == 0 ||
			e.Tier != "" {
			t.Errorf("%s, tier %q, classified %+v, step %+v", e.Code, e.Tier, e.Classified, last.Tier)
		}
	})
}

// TestTheRecordOfADisabledTenantNamesNoKey, because no key was accepted.
func TestTheRecordOfADisabledTenantNamesNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		made := decode[tenantChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants",
			`{"name":"off","issue_key":true}`))
		r.ops(http.StatusOK, http.MethodPatch, "/admin/tenants/off", `{"disabled":true}`)
		if a := r.post("/v1/chat/completions", hello, "Authorization", "Bearer "+made.Secret); a.status !=
			http.StatusForbidden {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if line := r.accessLog(); !strings.Contains(line, `"tenant":"off"`) || strings.Contains(line, `"key"`) {
			t.Error(line)
		}
	})
}
