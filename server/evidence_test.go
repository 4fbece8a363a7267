package server

import (
	"testing"

	"tierway/routing"
)

// TestEvidenceNeedsTwoRequests is the rule of blame for failures that a request may have
// caused, one letter a tenant and one digit a prompt; ! is a failure that counts.
func TestEvidenceNeedsTwoRequests(t *testing.T) {
	for _, c := range []struct{ failures, blamed string }{
		{"a1 a1 a1 a1 a1 a1 a1", "              "},
		{"a1 a2", "   ! "},
		{"a1 b1", "   ! "},
		{"a1 a2 a1 a2 a1 a2", "   !             "},
		{"a1 b1 a1 b1", "   !  !  ! "},
		{"a1 b1 a1 a1 a1", "   !  !      "},
		{"a1 a2 a3 a4", "   !  !  ! "},
	} {
		var e evidence
		for i := 0; i < len(c.failures); i += 3 {
			r := failedRequest{tenant: uint64(c.failures[i]), content: uint64(c.failures[i+1])}
			if blamed := e.add(nil, r); blamed != (i < len(c.blamed) && c.blamed[i] == '!') {
				t.Errorf("%s: failure %d is blamed: %v", c.failures, i/3+1, blamed)
			}
		}
	}
}

// TestEvidenceIsBounded and forgets the oldest request first.
func TestEvidenceIsBounded(t *testing.T) {
	var e evidence
	w := &routing.Worker{}
	for i := range 10 * evidenceKept {
		e.add(w, failedRequest{tenant: 1, content: uint64(i)})
	}
	if len(e.failed) != evidenceKept || cap(e.failed) > 2*evidenceKept {
		t.Errorf("%d requests are held in %d places", len(e.failed), cap(e.failed))
	}
	if e.holder(failedRequest{1, 10*evidenceKept - 1}) != w || e.holder(failedRequest{1, 9*evidenceKept - 1}) != nil {
		t.Error("it does not hold the last failures")
	}
}
