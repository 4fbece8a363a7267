package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/store"
	"tierway/tenants"
)

// TestKeysOfATenantAreListedInPages by id, with the number of keys on all pages.
func TestKeysOfATenantAreListedInPages(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		createTenant(t, s, "acme")
		createTenant(t, s, "other")
		createKey(t, s, "other")
		for _, id := range []string{"b", "A", "a-2", "a1", "Z"} { // databases collate them differently
			k := tenants.Key{ID: id, Tenant: "acme", Name: "name%" + id, Digest: tenants.Digest(id)}
			must(s.CreateKey(t.Context(), actor, k))(t)
		}
		for query, want := range map[store.KeyQuery]string{
			{Limit: 10}:               "[A Z a-2 a1 b] of 5",
			{Limit: 2}:                "[A Z] of 5",
			{Limit: 2, After: "Z"}:    "[a-2 a1] of 5",
			{Limit: 2, After: "a1"}:   "[b] of 5",
			{Limit: 2, After: "b"}:    "[] of 5",
			{Limit: 2, Search: "%a"}:  "[a-2 a1] of 2",
			{Limit: 2, Search: "a_1"}: "[] of 0",
		} {
			query.Tenant = "acme"
			page, total, err := s.KeyPage(t.Context(), query)
			ids := []string{}
			for _, k := range page {
				ids = append(ids, k.ID)
			}
			if got := fmt.Sprint(ids, " of ", total); got != want || err != nil {
				t.Errorf("%+v: %s instead of %s, %v", query, got, want, err)
			}
		}
		first, err := s.FirstKeysOf(t.Context(), 2, "acme", "other", "none")
		of := map[string]int{}
		for _, k := range first {
			of[k.Tenant]++
		}
		if err != nil || of["acme"] != 2 || of["other"] != 1 || len(of) != 2 ||
			!slices.ContainsFunc(first, func(k tenants.Key) bool { return k.ID == "Z" }) {
			t.Errorf("the first keys are %+v, %v", first, err)
		}
	})
}

// TestKeysAreCountedByState as tenants.Key.State has it.
func TestKeysAreCountedByState(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		createTenant(t, s, "acme")
		createTenant(t, s, "none")
		now := time.Now().UTC().Truncate(time.Minute)
		createKey(t, s, "acme")
		used := createKey(t, s, "acme")
		if err := s.TouchKeys(t.Context(), map[string]time.Time{used.ID: now}); err != nil {
			t.Fatal(err)
		}
		must(s.RevokeKey(t.Context(), actor, createKey(t, s, "acme").ID, "", now))(t)
		for _, end := range []time.Duration{0, time.Hour, 48 * time.Hour} {
			_, k := mint(t, "acme")
			k.ExpiresAt = now.Add(end)
			must(s.CreateKey(t.Context(), actor, k))(t)
		}
		_, next := mint(t, "acme")
		if _, _, err := s.RotateKey(t.Context(), actor, used.ID, next, time.Minute, now); err != nil {
			t.Fatal(err)
		}
		want := store.KeyCounts{Tenant: "acme", Expiring: 2, LastUsed: now}
		for _, k := range contents(t, s).Keys {
			*map[string]*int64{"active": &want.Active, "grace": &want.Grace, "expired": &want.Expired,
				"revoked": &want.Revoked}[k.State(now)]++
		}
		got, err := s.CountKeys(t.Context(), now, 24*time.Hour, "acme", "none")
		if diff := cmp.Diff([]store.KeyCounts{want}, got); diff != "" || err != nil || want.Grace != 1 || want.Expired != 1 {
			t.Errorf("%v, %s", err, diff)
		}
	})
}
