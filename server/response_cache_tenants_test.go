package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/memnet/memredis"
)

// keysOfTenants is the auth section of tenants a and b.
func keysOfTenants() string {
	return `auth:
  keys:
    - { name: a, sha256: ` + digestHex("key-a") + `, response_cache: true }
    - { name: b, sha256: ` + digestHex("key-b") + `, response_cache: true }`
}

// TestAnswersOfRemovedTenantsAreGone: a tenant of the file that has the name of an earlier one gets none of its
// answers, in memory and in Redis. A reload that removes a tenant removes its answers from memory.
func TestAnswersOfRemovedTenantsAreGone(t *testing.T) {
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, from := &numberingEngine{}, &editableFile{}
				var r *rig
				if store == "memory" {
					r = newRig(t, cachingRig, e)
				} else {
					r = newSharedRig(t, memredis.Start(t, networkOf(t).Network).URL, "", e)
				}
				r.source = from.read
				const path = "/v1/chat/completions"
				ask := func(key, want string) {
					t.Helper()
					if _, result := r.cached(path, cacheBodies[path]+"}", "Authorization", "Bearer "+key); result != want {
						t.Errorf("%s: %s, want %s", key, result, want)
					}
				}
				reload := func(text string) {
					from.write(text)
					r.reload()
				}
				both := strings.Replace(r.text, "auth: { required: false }", keysOfTenants(), 1)
				removed, _, _ := strings.Cut(keysOfTenants(), "\n    - { name: b")
				removed = strings.Replace(both, keysOfTenants(), removed, 1)
				replaced := strings.Replace(both, digestHex("key-b"), digestHex("key-c"), 1)
				reload(both)
				for _, key := range []string{"key-a", "key-b"} {
					ask(key, cacheMiss)
					ask(key, exactHit)
				}
				reload(removed)
				if n := r.proxy.CacheMemory().Entries; store == "memory" && n != 1 {
					t.Errorf("%d answers are in memory", n)
				}
				reload(replaced)
				ask("key-c", cacheMiss)
				ask("key-c", exactHit)
				reload(both) // without a reload between the two tenants
				if store == "memory" {
					ask("key-b", cacheMiss)
				}
				ask("key-b", exactHit)
				ask("key-a", exactHit)
			})
		})
	}
}

// TestAnswersOfDeletedTenantsAreGone: the deletion of a tenant of the database removes its answers from memory, and a
// purge needs no tenant.
func TestAnswersOfDeletedTenantsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Replace(adminYAML(memoryDB), "    serves:", "    response_cache: { exact: {} }\n    serves:", 1)
		r := adminRigOf(newRig(t, text, &numberingEngine{}))
		made := decode[tenantChanged](t, r.ops(http.StatusCreated, http.MethodPost, "/admin/tenants",
			`{"name":"acme","response_cache":true,"issue_key":true}`))
		body := cacheBodies["/v1/chat/completions"] + "}"
		for _, want := range []string{cacheMiss, exactHit} {
			if _, result := r.cached("/v1/chat/completions", body, "Authorization", "Bearer "+made.Secret); result != want {
				t.Fatal(result)
			}
		}
		r.ops(http.StatusNoContent, http.MethodDelete, "/admin/tenants/acme?confirm=acme", "", "If-Match", `"v1"`)
		if n := r.proxy.CacheMemory().Entries; n != 0 {
			t.Errorf("%d answers are in memory", n)
		}
		for name, want := range map[string]string{"acme": `"removed":0,"unknown":true`, "filed": `"removed":0`,
			"anonymous": `"removed":0`} {
			got := r.ops(http.StatusOK, http.MethodPost, "/admin/tenants/"+name+"/purge-answers", "")
			if !strings.Contains(got.body, want) || strings.Contains(got.body, "unknown") != (name == "acme") {
				t.Errorf("%s: %s", name, got.body)
			}
		}
		r.ops(http.StatusUnprocessableEntity, http.MethodPost, "/admin/tenants/No_Tenant/purge-answers", "")
	})
}

// TestGenerationsInRedisNeverComeBack: after a purge, and after the loss of the generation, no older answer is found.
func TestGenerationsInRedisNeverComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memredis.Start(t, networkOf(t).Network)
		r := newSharedRig(t, server.URL, "", &numberingEngine{})
		const path = "/v1/chat/completions"
		body := cacheBodies[path] + "}"
		lose := func() {
			for _, key := range server.Keys() {
				if strings.HasSuffix(key, ":generation") {
					server.Del(key)
				}
			}
		}
		purge := func() {
			if _, err := r.proxy.PurgeCache(t.Context(), "anonymous"); err != nil {
				t.Fatal(err)
			}
		}
		for i, event := range [][]func(){nil, {purge, lose}, {lose}, {purge}, {lose, purge}, {purge, lose, purge}} {
			for _, f := range event {
				f()
			}
			for _, want := range []string{cacheMiss, exactHit} {
				if _, result := r.cached(path, body); result != want {
					t.Errorf("%d: %s, want %s", i, result, want)
				}
			}
		}
	})
}
