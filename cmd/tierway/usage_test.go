package main

import (
	"strings"
	"testing"
)

// TestFlagConflictsNameTheFlags: missing and conflicting flags of every command.
func TestFlagConflictsNameTheFlags(t *testing.T) {
	for args, want := range map[string]string{
		"explain":                      "tierway: --file or --decision is required; tierway explain --help has examples\n",
		"explain --live -f x -c y":     "tierway: --live and --config: use only one of them\n",
		"serve --model m":              "tierway: --worker-urls is required with --model\n",
		"serve --worker-urls http://a": "tierway: --model is required with --worker-urls\n",
		"replay --live -c x":           "tierway: --config and --live: use only one of them\n",
		"explain r.json": "tierway: \"r.json\": tierway explain takes no arguments, only flags; tierway " +
			"explain --help has examples\n",
		"replay": "tierway: --decisions or --live is required; tierway replay --help has examples\n",
	} {
		if s := tierway(t, strings.Fields(args)...); s.status != 2 || s.messages != want || s.out != "" {
			t.Errorf("%s ends with %d and says %q, want %q", args, s.status, s.messages, want)
		}
	}
}

// TestHelpExplainsExitStatuses: the help of every command with several exit statuses lists them.
func TestHelpExplainsExitStatuses(t *testing.T) {
	for _, verb := range []string{"check", "explain", "reload", "replay"} {
		if s := must(t, verb, "--help"); !strings.Contains(s.out, "Exit status: 0 ") {
			t.Errorf("%s --help does not say:\n%s", verb, s.out)
		}
	}
}
