package store_test

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tierway/fixedseed"
	"tierway/store"
	"tierway/tenants"
)

// TestChangesLeadToTheContentsOfAWholeRead after any sequence of changes, also if several are read at once.
func TestChangesLeadToTheContentsOfAWholeRead(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		rng := mathrand.New(mathrand.NewPCG(fixedseed.Uint64()(), 1))
		ctx, known := t.Context(), contents(t, s)
		name := func() string { return fmt.Sprintf("t%d", rng.IntN(3)) }
		anyKey := func() (k tenants.Key) {
			if all := contents(t, s).Keys; len(all) > 0 {
				k = all[rng.IntN(len(all))]
			}
			return k
		}
		minted := func() tenants.Key {
			_, k, err := tenants.Mint(rand.Reader, "")
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		steps := []func() error{
			func() error { _, err := s.CreateTenant(ctx, actor, tenants.Tenant{Name: name()}); return err },
			func() error {
				_, err := s.UpdateTenant(ctx, actor, tenants.Tenant{Name: name(), Disabled: rng.IntN(2) == 0}, 0)
				return err
			},
			func() error { return s.DeleteTenant(ctx, actor, name(), 0) },
			func() error { k := minted(); k.Tenant = name(); _, err := s.CreateKey(ctx, actor, k); return err },
			func() error { k := minted(); k.Tenant = name(); _, err := s.CreateKey(ctx, actor, k); return err },
			func() error { k := anyKey(); k.Name = "new"; _, err := s.UpdateKey(ctx, actor, k, 0); return err },
			func() error {
				_, _, err := s.RotateKey(ctx, actor, anyKey().ID, minted(), time.Minute, time.Now())
				return err
			},
			func() error { _, err := s.RevokeKey(ctx, actor, anyKey().ID, "", time.Now()); return err },
			func() error {
				_, err := s.CreateAdmin(ctx, actor, store.Admin{ID: "a", Name: "a", Role: store.RoleAdmin})
				return err
			},
			func() error { return s.DeleteAdmin(ctx, actor, "a", true) },
			func() error { return s.SetOverride(ctx, actor, store.Override{Worker: name(), Drain: true}) },
			func() error { return s.AppendAudit(ctx, actor, "admin.refused", "x", "", "", "no") },
		}
		for i := range 150 {
			for range 1 + rng.IntN(4) {
				_ = steps[rng.IntN(len(steps))]() // a change of what does not exist changes nothing
			}
			now, whole, err := s.ContentsSince(ctx, known)
			known = now
			want := contents(t, s)
			want.Audited, now.Audited = 0, 0 // entries about nothing in the directory
			if diff := cmp.Diff(want, now, cmpopts.EquateEmpty()); err != nil || !whole || diff != "" {
				t.Fatalf("step %d: %v, whole: %v (-want +got):\n%s", i, err, whole, diff)
			}
		}
	})
}

// TestChangesThatTheAuditLogDoesNotExplainNeedAWholeRead: the rows of the table were changed by hand, or the database
// is another one. Revocations are found all the same.
func TestChangesThatTheAuditLogDoesNotExplainNeedAWholeRead(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		secretless := func(name string) tenants.Key {
			_, k, err := tenants.Mint(rand.Reader, name)
			if err == nil {
				_, err = s.CreateTenant(t.Context(), actor, tenants.Tenant{Name: name})
			}
			if err == nil {
				k, err = s.CreateKey(t.Context(), actor, k)
			}
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		k := secretless("acme")
		before := contents(t, s)
		before.Revision-- // as if the revision had grown without an entry
		secretless("other")
		if _, err := s.RevokeKey(t.Context(), actor, k.ID, "", time.Now()); err != nil {
			t.Fatal(err)
		}
		now, whole, err := s.ContentsSince(t.Context(), before)
		if err != nil || whole || now.Revision != before.Revision || len(now.Keys) != 1 || now.Keys[0].RevokedAt.IsZero() ||
			!before.Keys[0].RevokedAt.IsZero() {
			t.Errorf("%v, whole: %v: %+v, before %+v", err, whole, now, before)
		}
	})
}
