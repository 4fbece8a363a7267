package main

import (
	"strings"
	"testing"
)

// TestFlagsThatDoNotGoTogetherAreNamedAsTheyAreWritten: what is missing or too
// much, in whatever verb.
func TestFlagsThatDoNotGoTogetherAreNamedAsTheyAreWritten(t *testing.T) {
	for args, want := range map[string]string{
		"explain":                       "tierway: --file or --decision is needed; tierway explain --help has examples\n",
		"explain --live -f x -c y":      "tierway: --live and --config: only one of them can be given\n",
		"serve --model m":               "tierway: --worker-urls is needed with --model\n",
		"serve --worker-urls http://a":  "tierway: --model is needed with --worker-urls\n",
		"keys list -c x --api http://a": "tierway: --config and --api: only one of them can be given\n",
		"replay --live -c x":            "tierway: --config and --live: only one of them can be given\n",
		"explain r.json":                "tierway: \"r.json\": tierway explain takes flags only; tierway explain --help has examples\n",
		"replay":                        "tierway: --decisions or --live is needed; tierway replay --help has examples\n",
	} {
		if s := tierway(t, strings.Fields(args)...); s.status != 2 || s.messages != want || s.out != "" {
			t.Errorf("%s ends with %d and says %q, want %q", args, s.status, s.messages, want)
		}
	}
}

// TestHelpSaysWhatAStatusMeans of every verb that ends with more than one.
func TestHelpSaysWhatAStatusMeans(t *testing.T) {
	for _, verb := range []string{"check", "explain", "reload", "replay"} {
		if s := must(t, verb, "--help"); !strings.Contains(s.out, "Exits with 0 when") {
			t.Errorf("%s --help does not say:\n%s", verb, s.out)
		}
	}
}
