package admin

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tierway/tenants"
)

// TestMergePatchWithTheSameValuesChangesNothing: an object can be read and sent back.
func TestMergePatchWithTheSameValuesChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringMatching(`[a-z*?]{1,8}`), 0, 3)
		s := tenants.Tenant{Disabled: rapid.Bool().Draw(t, "disabled"), Degrade: rapid.Bool().Draw(t, "degrade"),
			Weight: rapid.IntRange(1, 1000).Draw(t, "weight"),
			Rights: tenants.Rights{Tiers: names.Draw(t, "tiers"),
				Priority: tenants.Class(rapid.IntRange(0, 2).Draw(t, "class"))},
			Limits: tenants.Limits{RPM: rapid.Int64Range(0, 1e12).Draw(t, "rpm"),
				DayMoney: tenants.Money(rapid.Int64Range(0, 1e18).Draw(t, "money"))}}
		if rapid.Bool().Draw(t, "restricted") {
			s.Models = names.Draw(t, "models")
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, patch := range []string{string(text), "{}"} {
			got, err := merged(s, json.RawMessage(patch))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s, got); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", patch, diff)
			}
		}
		if got, err := merged(s,
			json.RawMessage(
				`{"tiers":null,"models":null,"limits":null,"disabled":null,"degrade":null,"weight":null,"priority":null,"default_priority":null}`)); err != nil || cmp.Diff(tenants.Tenant{}, got) != "" {
			t.Fatalf("all null: %+v (%v)", got, err)
		}
	})
}
