package control

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// AD-05: a secret is announced if no key has the role admin, which includes expired keys and keys
// of viewers. It is voided when such a key appears or the secret expires.
func TestBootstrapSecretIsAnnouncedOnlyWithoutAnAdmin(t *testing.T) {
	admin := func(role string, expires time.Time) []store.Admin {
		return []store.Admin{{ID: "1", Name: "ada", Role: role, Digest: tenants.Digest("1"), ExpiresAt: expires,
			CreatedAt: time.Now()}}
	}
	viewer, ops := "admin: { keys: [ { name: eyes, sha256: "+hexDigest("eyes")+", role: viewer } ] }\n",
		"admin: { keys: [ { name: ops, sha256: "+hexDigest("ops")+" } ] }\n"
	for name, tt := range map[string]struct {
		yaml   string
		admins []store.Admin
		want   bool
	}{
		"no admin":             {"", nil, true},
		"a viewer of the file": {viewer, nil, true},
		"a viewer":             {"", admin(store.RoleViewer, time.Time{}), true},
		"an expired admin":     {"", admin(store.RoleAdmin, time.Now().Add(-time.Second)), true},
		"an admin":             {"", admin(store.RoleAdmin, time.Now().Add(time.Minute)), false},
		"an admin of the file": {ops, admin(store.RoleViewer, time.Time{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestControl(t, tt.yaml+"store: { sql: \"sqlite://:memory:\" }\n"+small)
			c.Bootstrap = newBootstrap(c.log, true)
			announced, voided := 0, 0
			countAnnouncements := func() {
				for range len(c.Bootstrap.Announcements()) {
					if a := <-c.Bootstrap.Announcements(); a.Secret == "" {
						voided++
					} else {
						announced++
					}
				}
			}
			apply := func(admins []store.Admin) {
				t.Helper()
				c.changing.Lock()
				defer c.changing.Unlock()
				if err := c.change(changeDirectory{changes: &store.Changes{Few: true, Admins: admins}}); err != nil {
					t.Fatal(err)
				}
			}
			apply(tt.admins)
			apply(tt.admins)
			countAnnouncements()
			if got := announced == 1; got != tt.want || voided != 0 {
				t.Fatalf("announced %d times, voided %d", announced, voided)
			}
			if !tt.want {
				return
			}
			if name == "no admin" {
				c.Bootstrap.secret.Store(&bootstrapSecret{digest: c.Bootstrap.secret.Load().digest,
					until: time.Now().Add(-time.Second)})
				apply(nil)
			} else {
				apply(admin(store.RoleAdmin, time.Time{}))
				apply(admin(store.RoleAdmin, time.Time{}))
			}
			if countAnnouncements(); voided != 1 || announced != 1 {
				t.Errorf("after the change it is announced %d times, voided %d", announced, voided)
			}
		})
	}
}

// AD-05: an expired secret is rejected.
func TestBootstrapSecretExpires(t *testing.T) {
	secret, err := tenants.NewKey(rand.Reader, tenants.BootstrapPrefix)
	if err != nil {
		t.Fatal(err)
	}
	for until, want := range map[time.Duration]bool{time.Minute: true, -time.Second: false} {
		b := &Bootstrap{}
		if b.offer(secret, time.Now().Add(until)); b.Check(secret) != want {
			t.Errorf("valid for %v, accepted: %v", until, !want)
		}
	}
}

// hexDigest returns the digest of a key in the form of config.yaml.
func hexDigest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
