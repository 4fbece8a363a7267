package main

import (
	"strings"
	"testing"
)

// TestCheckListsRoles verifies that check names the workers of each role.
func TestCheckListsRoles(t *testing.T) {
	t.Setenv("TIERWAY_KEY_SHA256", strings.Repeat("0a", 32))
	out, messages, err := runTree("", "check", "-c", "../../examples/disaggregation/p2p-nccl.yaml")
	if want := "small: handover p2p_nccl: prefill prefill-0; decode decode-0; both whole-0\n"; err != nil ||
		!strings.HasSuffix(out, "0 pools, 3 workers, 1 keys)\n"+want) {
		t.Errorf("%v %s %s", err, out, messages)
	}
}
