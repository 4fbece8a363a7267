package control

import (
	"testing"
	"time"

	"tierway/routing"
)

// TestEvidenceNeedsTwoRequests is the rule of blame for failures that a request may have
// caused, one letter a tenant and one digit a prompt; 0 is a good answer, a dot a minute
// later, and ! a failure that counts.
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
					t.Errorf("%s: event %d is blamed: %v", c.events, i/3+1, blamed)
				}
			}
		}
	}
}

// TestEvidenceIsBounded and forgets the oldest request first.
func TestEvidenceIsBounded(t *testing.T) {
	var e evidence
	w := &routing.Worker{}
	for i := range 10 * evidenceKept {
		e.AddFailure(w, FailedRequest{Tenant: 1, Content: uint64(i)}, time.Time{})
	}
	if len(e.failed) != evidenceKept || cap(e.failed) > 2*evidenceKept {
		t.Errorf("%d requests are held in %d places", len(e.failed), cap(e.failed))
	}
	if e.FailedWorker(FailedRequest{1, 10*evidenceKept - 1}) != w ||
		e.FailedWorker(FailedRequest{1, 9*evidenceKept - 1}) != nil {
		t.Error("it does not hold the last failures")
	}
}
