package config

import (
	"testing"

	"tierway/tenants"
)

func TestModelGlobsThatOverlapAServedModelAreKnown(t *testing.T) {
	names := RightNames{Models: []string{"auto", "qwen-7b", "gpt-4*-mini"}}
	for glob, want := range map[string]bool{"auto": true, "qwen*": true, "*": true, "gpt-4o-mini": true, "gpt-4o*": true,
		"gpt-?o-m*ni": true, "llama-*": false, "gpt-*-maxi": false, "gpt-4o": false, "qwen-8b": false, "gpt-5": false,
		"": false} {
		if unknown := names.Unknown(tenants.Rights{Models: []string{glob}}); (len(unknown) == 0) != want {
			t.Errorf("%q: %v, want %v", glob, unknown, want)
		}
	}
}

// TestUnknownRightsAreHintedAt: the hint has the names that exist, also if one of them is near.
func TestUnknownRightsAreHintedAt(t *testing.T) {
	names := RightNames{Targets: []string{"small", "large"}}
	for name, want := range map[string]string{"smal": "did you mean small? known: small, large",
		"huge": "known: small, large", "": "known: small, large"} {
		unknown := names.Unknown(tenants.Rights{Tiers: []string{"large", name}})
		if len(unknown) != 1 || unknown[0].Index != 1 || unknown[0].Field != "tiers" || unknown[0].Hint() != want {
			t.Errorf("%q: %+v, want %q", name, unknown, want)
		}
	}
	if unknown := names.Unknown(tenants.Rights{Tiers: []string{}, Models: nil}); len(unknown) != 0 {
		t.Errorf("without names: %+v", unknown)
	}
}
