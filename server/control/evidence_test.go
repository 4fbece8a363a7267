package control

import (
	"testing"
	"time"

	"tierway/routing"
)

// TestEvidenceNeedsTwoRequests: a failure that its request may have caused counts only beside another
// one. A letter is a tenant and a digit a prompt; 0 is a good answer, and a dot is a minute without
// requests. An exclamation mark is under each failure that counts.
func TestEvidenceNeedsTwoRequests(t *testing.T) {
	for _, c := range []struct{ events, blamed string }{
		{"a1 a1 a1 a1 a1 a1 a1", "                    "},
		{"a1 a2", "   ! "},
		{"a1 b1", "   ! "},
		{"a1 a2 a1 a2 a1 a2", "   !             "},
		{"a1 b1 a1 b1", "   !  !  ! "},
		{"a1 b1 a1 a1 a1", "   !  !       "},
		{"a1 a2 a3 a4", "   !  !  ! "},
		{"a1 b1 a2 a1 a2", "   !  !        "},
		{"b0 a1 a2 a3 a4", "              "},
		{"b0 a1 a0 a2 c0 a3 a0 a4", "                       "},
		{"b0 a1 .. a2 a3", "         !  ! "},
		{"a0 a1 a2 a3", "      !  ! "},
		{"b0 a1 c1 a2 a3", "      !  !    "},
	} {
		var e evidence
		now := time.Unix(0, 0)
		for i := 0; i < len(c.events); i += 3 {
			tenant, content := uint64(c.events[i]), uint64(c.events[i+1])
			switch content {
			case '.':
				now = now.Add(contradictedFor)
			case '0':
				e.AddAnswer(tenant, now)
			default:
				if blamed := e.AddFailure(nil, FailedRequest{tenant, content}, now); blamed != (i < len(c.blamed) &&
					c.blamed[i] == '!') {
					t.Errorf("%s: event %d counts: %v", c.events, i/3+1, blamed)
				}
			}
		}
	}
}

// TestEvidenceIsBounded: the oldest request is removed first.
func TestEvidenceIsBounded(t *testing.T) {
	var e evidence
	w := &routing.Worker{}
	for i := range 10 * evidenceKept {
		e.AddFailure(w, FailedRequest{Tenant: 1, Content: uint64(i)}, time.Time{})
	}
	if len(e.failed) != evidenceKept || cap(e.failed) > 2*evidenceKept {
		t.Errorf("%d requests are kept, with a capacity of %d", len(e.failed), cap(e.failed))
	}
	if e.FailedWorker(FailedRequest{1, 10*evidenceKept - 1}) != w ||
		e.FailedWorker(FailedRequest{1, 9*evidenceKept - 1}) != nil {
		t.Error("the last failures are not kept")
	}
}
