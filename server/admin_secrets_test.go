package server

import (
	"strings"
	"testing"
	"testing/synctest"
)

// OB-01: an error about one field repeats no secret that another field has.
func TestAnErrorRepeatsNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(plain, "auth:", "store: { sql: \"sqlite://:memory:\" }\nauth:", 1), fakeEngine())
		admin := startServer(t, r.planes.adminHandler())
		r.url = admin
		const secret = "tw-boot-000000000000000000000000000_000000"
		for _, body := range []string{`{"secret":"` + secret + `"}`, `{"secret":"` + secret + `","name":5}`,
			`{"secret":["` + secret + `"],"name":"me"}`, `{"name":"me","sekret":"` + secret + `"}`} {
			for _, kind := range []string{"application/json", "text/plain"} {
				a := r.post("/admin/bootstrap", body, "Content-Type", kind)
				if a.status < 400 || strings.Contains(a.body, secret) {
					t.Errorf("%s as %s: %d %s", body, kind, a.status, a.body)
				}
			}
		}
	})
}
