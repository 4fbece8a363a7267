package server

import (
	"strings"
	"testing"
	"testing/synctest"
)

// TestRecordOfAnUnknownKeyNamesKeyAndAddress: an operator finds the client that sends it. The key itself is nowhere.
func TestRecordOfAnUnknownKeyNamesKeyAndAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := adminRigOf(newRig(t, "trusted_proxies: [ 127.0.0.1, 192.0.2.1 ]\n"+adminYAML(memoryDB), fakeEngine()))
		const wrong = "tw-abcdefghijklmnopqrstuvwxyz0_123456"
		for _, tt := range []struct{ header, key, hint string }{
			{"Authorization", "Bearer " + wrong, "tw-abcd…3456"},
			{"X-Api-Key", "sk-proj-0123456789012345678901234567890123456789wxyz", "sk-proj…wxyz"},
			{"Authorization", "Bearer password-of-someone", "…"},
			{"Authorization", "Bearer filed", ""},
			{"Authorization", "", ""},
		} {
			before := len(r.recorded().Last(0))
			r.post("/v1/chat/completions", chatBody("small", "hi", ""), tt.header, tt.key, "X-Forwarded-For", "203.0.113.9")
			waitUntil(t, "the record", func() bool { return len(r.recorded().Last(0)) > before })
			all := r.recorded().Last(0)
			d, ip := all[len(all)-1], "203.0.113.9"
			if d.Tenant != "" {
				ip = ""
			}
			if d.KeyHint != tt.hint || d.ClientIP != ip {
				t.Errorf("%q: status %d, hint %q, address %q; want %q, %q", tt.key, d.Status, d.KeyHint, d.ClientIP, tt.hint, ip)
			}
		}
		found := decode[decisionList](t, r.callAdmin("eyes", "GET", "/admin/decisions?q=3456", ""))
		if len(found.Items) != 1 || found.Items[0].KeyHint != "tw-abcd…3456" {
			t.Errorf("a search for the end of the key finds %+v", found.Items)
		}
		waitUntil(t, "the access log", func() bool { return strings.Count(r.accessLog(), "\n") == 5 })
		for _, text := range []string{`"key_hint":"tw-abcd…3456","client_ip":"203.0.113.9"`} {
			if !strings.Contains(r.accessLog(), text) {
				t.Errorf("the access log has no %s:\n%s", text, r.access)
			}
		}
		if strings.Contains(r.accessLog()+r.logs.String(), wrong) {
			t.Error("a log has the key")
		}
	})
}
