package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// parsed returns a configuration.
func parsed(t *testing.T, yaml string) *config.File {
	t.Helper()
	f, err := config.Parse("test.yaml", []byte("classifier: { preset: none }\nstore: { sql: \"\" }\n"+yaml),
		func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// begun returns the first state under a configuration.
func begun(t *testing.T, yaml string) *Snapshot {
	t.Helper()
	was := &Snapshot{Configuration: Configuration{Base: parsed(t, yaml)},
		Identity: &Identity{Directory: tenants.NewDirectory(nil, nil)}}
	next, e, err := Next(was, begin{}, time.Unix(1, 0))
	if err != nil || !e.Pools || next.Generation != 1 || len(next.Pools) != 1 {
		t.Fatalf("%+v, %+v, %v", next, e, err)
	}
	return next
}

// TestNextStateHasTheChangeAndNothingElse: the state before is unchanged, and an effect is named only if it is needed.
func TestNextStateHasTheChangeAndNothingElse(t *testing.T) {
	now := time.Unix(100, 0)
	override := func(edit func(store.Override) (store.Override, error)) changeOverride {
		return changeOverride{worker: "w0", edit: edit, result: new(store.Override)}
	}
	drain := override(func(o store.Override) (store.Override, error) {
		o.Drain, o.Until = true, now.Add(time.Minute)
		return o, nil
	})
	acme := &store.Changes{Changes: tenants.Changes{Tenants: []tenants.Tenant{{Name: "acme"}}}, Few: true,
		Admins: []store.Admin{{Name: "ada"}}}
	weighed := strings.Replace(small, "name: w0,", "name: w0, weight: 3,", 1)
	for name, c := range map[string]struct {
		change          Change
		pools, identity bool
		check           func(*Snapshot) bool
	}{
		"another weight": {replacing(parsed(t, small), parsed(t, weighed)), true, true, func(s *Snapshot) bool { return s.Generation == 2 }},
		"the same file":  {replacing(parsed(t, small), parsed(t, small)), false, false, func(s *Snapshot) bool { return s.Generation == 1 }},
		"a tenant": {changeDirectory{changes: acme, revision: 7}, false, true, func(s *Snapshot) bool {
			return s.Identity.Directory.Knows("acme", "") && s.Identity.Revision == 7 && s.Identity.ReadAt.Equal(now)
		}},
		"a drain":            {drain, true, true, func(s *Snapshot) bool { return s.weights["w0"] == 0 && len(s.weights) == 1 }},
		"an unchanged drain": {override(func(o store.Override) (store.Override, error) { return o, nil }), false, false, nil},
		"time":               {timePasses{}, false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			was := begun(t, small)
			before := *was
			next, e, err := Next(was, c.change, now)
			if err != nil || e.Pools != c.pools || e.Identity != c.identity || c.check == nil && next != was {
				t.Fatalf("%+v, %v", e, err)
			}
			if c.check != nil && !c.check(next) {
				t.Errorf("the state is %+v with %+v", next.Configuration, next.Identity)
			}
			if before.Identity != was.Identity || before.Generation != was.Generation ||
				was.Identity.Directory.Knows("acme", "") {
				t.Error("the state before has changed")
			}
		})
	}
}

// TestTimeEndsAnOverride: the weight of the file is in force again, and nothing happens before.
func TestTimeEndsAnOverride(t *testing.T) {
	was, now := begun(t, small), time.Unix(100, 0)
	drained, _, err := Next(was, changeOverride{worker: "w0", result: new(store.Override),
		edit: func(o store.Override) (store.Override, error) {
			o.Drain, o.Until = true, now.Add(time.Minute)
			return o, nil
		}}, now)
	if err != nil {
		t.Fatal(err)
	}
	if next, e, err := Next(drained, timePasses{}, now.Add(59*time.Second)); next != drained || e.Pools || err != nil {
		t.Errorf("before its end: %+v, %v", e, err)
	}
	next, e, err := Next(drained, timePasses{}, now.Add(time.Minute))
	if err != nil || !e.Pools || len(next.weights) != 0 || *next.Pools[0].Workers[0].Weight != 1 {
		t.Errorf("after its end: %+v, %+v, %v", next.weights, e, err)
	}
}

// TestRemovedTenantsDepart with their keys, whether the file or the database had them.
func TestRemovedTenantsDepart(t *testing.T) {
	keyed := strings.Replace(small, "auth: { required: false }",
		"auth: { keys: [ { name: filed, sha256: "+hexDigest("a key")+" } ] }", 1)
	was := begun(t, keyed)
	_, e, err := Next(was, replacing(was.Base, parsed(t, small)), time.Unix(2, 0))
	if err != nil || len(e.Departed) != 2 || e.Departed[0].Tenant != "filed" || e.Departed[1].Key == "" {
		t.Errorf("%+v, %v", e, err)
	}
	k := tenants.Key{ID: "k", Tenant: "acme", Digest: tenants.Digest("another")}
	with, _, err := Next(was, changeDirectory{changes: &store.Changes{Changes: tenants.Changes{
		Tenants: []tenants.Tenant{{Name: "acme"}}, Keys: []tenants.Key{k}}}}, time.Unix(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]changeDirectory{
		"deleted":          {changes: &store.Changes{Changes: tenants.Changes{GoneTenants: []string{"acme"}, GoneKeys: []string{"k"}}}},
		"another database": {changes: &store.Changes{Restart: true}, whole: tenants.NewDirectory(nil, nil)},
	} {
		if next, e, err := Next(with, c, time.Unix(3, 0)); err != nil || len(e.Departed) != 2 ||
			next.Identity.Directory.Knows("acme", "") || !next.Identity.Directory.Knows("filed", "") {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// TestRefusedChangeChangesNothing.
func TestRefusedChangeChangesNothing(t *testing.T) {
	was, refused := begun(t, small), errors.New("no")
	next, e, err := Next(was, changeOverride{worker: "w0", result: new(store.Override),
		edit: func(o store.Override) (store.Override, error) { return o, refused }}, time.Unix(2, 0))
	if !errors.Is(err, refused) || next != was || e.Pools || e.Identity {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestRevisionGrowsWithTheLastPageOfAChange: the admin UI reads tenants and keys again when it grows.
func TestRevisionGrowsWithTheLastPageOfAChange(t *testing.T) {
	now, state := time.Unix(2, 0), begun(t, small)
	for i, c := range []struct{ revision, want int64 }{{5, 5}, {0, 5}, {0, 5}, {9, 9}} {
		next, _, err := Next(state, changeDirectory{changes: &store.Changes{}, revision: c.revision}, now)
		if err != nil || next.Identity.Revision != c.want {
			t.Fatalf("page %d: revision %d, %v", i, next.Identity.Revision, err)
		}
		state = next
	}
}
