package store_test

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
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
		ctx := t.Context()
		createTenant(t, s, "first") // a position of a database without changes has no end to continue from
		known, at := tenants.NewDirectory(nil, nil), store.Position{}
		var few store.Changes
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
			changed, err := s.HasChanged(ctx, at)
			if err != nil {
				t.Fatal(err)
			}
			c, to, err := s.ChangesSince(ctx, at)
			if err != nil || !to.Whole() || c.Restart || !changed && (len(c.Tenants)+len(c.Keys)+len(c.GoneKeys) > 0 || c.Few) {
				t.Fatalf("step %d: %v, position %+v, changed %v: %+v", i, err, to, changed, c)
			}
			if known, at = known.With(&c.Changes), to; c.Few {
				few = c
			}
			want := contents(t, s)
			got := store.Contents{Revision: at.Revision, Tenants: slices.Collect(known.Tenants()), Admins: few.Admins,
				Overrides: few.Overrides, Audited: want.Audited}
			got.Keys = slices.SortedFunc(known.StoredKeys(), func(a, b tenants.Key) int {
				return strings.Compare(a.Tenant+" "+a.ID, b.Tenant+" "+b.ID)
			})
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("step %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// follower is a directory that follows a database.
type follower struct {
	*tenants.Directory
	at      store.Position
	restart bool // the last step began again
}

// step reads the next changes.
func (f *follower) step(t testing.TB, s *store.SQL) (c store.Changes) {
	t.Helper()
	c, to, err := s.ChangesSince(t.Context(), f.at)
	if err != nil {
		t.Fatal(err)
	}
	if f.restart = c.Restart; c.Restart || f.Directory == nil {
		f.Directory = tenants.NewDirectory(nil, nil)
	}
	f.Directory, f.at = f.With(&c.Changes), to
	return c
}

// has reports whether the key is valid.
func (f *follower) has(k tenants.Key) bool { return f.Knows(k.Tenant, k.ID) }

// TestChangesOfAnotherDatabaseBeginAgain: a backup was restored, or marks of deleted keys were pruned since.
func TestChangesOfAnotherDatabaseBeginAgain(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		must(s.CreateTenant(t.Context(), actor, tenants.Tenant{Name: "acme"}))(t)
		first := createKey(t, s, "acme")
		var f follower
		f.step(t, s)
		away := f
		second := createKey(t, s, "acme")
		f.step(t, s)
		if f.restart || !f.at.Whole() || !f.has(first) || !f.has(second) {
			t.Fatalf("%+v", f)
		}
		createTenant(t, s, "short")
		if err := s.DeleteTenant(t.Context(), actor, "short", 0); err != nil {
			t.Fatal(err)
		}
		if err := s.PruneDeletions(t.Context(), time.Unix(1<<40, 0)); err != nil {
			t.Fatal(err)
		}
		if away.step(t, s); !away.restart || !away.at.Whole() || !away.has(first) || !away.has(second) {
			t.Errorf("after the marks were pruned: %+v", away)
		}
		createTenant(t, s, "last")
		if away.step(t, s); away.restart {
			t.Error("it begins again without a reason")
		}
		other := must(store.OpenSQL(store.SQLConfig{URL: "sqlite://:memory:"}))(t)
		defer other.Close()
		must(other.Migrate(t.Context()))(t)
		for i := range 5 { // more changes than the first database has
			must(other.CreateTenant(t.Context(), actor, tenants.Tenant{Name: fmt.Sprint("t", i)}))(t)
		}
		third := createKey(t, other, "t1")
		if f.step(t, other); !f.restart || !f.at.Whole() || f.has(first) || !f.has(third) {
			t.Errorf("after another database: %+v", f)
		}
	})
}

// TestManyChangesAreReadInPages: what withdraws rights comes first, each page continues after the one before, and rows
// that change meanwhile come once more.
func TestManyChangesAreReadInPages(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		must(s.CreateTenant(t.Context(), actor, tenants.Tenant{Name: "acme"}))(t)
		must(s.CreateTenant(t.Context(), actor, tenants.Tenant{Name: "closed"}))(t)
		var keys []tenants.Key
		for range 6 {
			keys = append(keys, createKey(t, s, "acme"))
		}
		var f follower
		f.step(t, s)
		const many = 10_000 + 5
		if err := s.InsertKeys(t.Context(), "acme", many); err != nil {
			t.Fatal(err)
		}
		must(s.RevokeKey(t.Context(), actor, keys[0].ID, "", time.Now()))(t)
		must(s.UpdateTenant(t.Context(), actor, tenants.Tenant{Name: "closed", Disabled: true}, 0))(t)
		_, next := mint(t, "acme")
		if _, _, err := s.RotateKey(t.Context(), actor, keys[1].ID, next, 0, time.Now()); err != nil {
			t.Fatal(err)
		}
		c := f.step(t, s)
		closed, _ := f.Tenant("closed")
		old, _ := f.Key(keys[1].ID)
		if f.at.Whole() || f.has(keys[0]) || !closed.Disabled || old.Valid(time.Now()) {
			t.Fatalf("after the first page of %d keys: whole %v, revoked key valid %v, tenant %+v, rotated key %+v", len(c.Keys),
				f.at.Whole(), f.has(keys[0]), closed, old)
		}
		must(s.RevokeKey(t.Context(), actor, keys[2].ID, "", time.Now()))(t)
		steps := 1
		for ; !f.at.Whole() && steps < 10_000; steps++ {
			f.step(t, s)
			if f.has(keys[0]) || f.has(keys[2]) {
				t.Fatal("a revoked key is valid")
			}
		}
		if _, n := f.Stored(); n != many+7 || f.restart {
			t.Errorf("%d keys after %d steps", n, steps)
		}
	})
}
