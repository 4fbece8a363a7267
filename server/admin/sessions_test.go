package admin

import (
	"crypto/sha256"
	"testing"
	"time"
)

var someAdmin = sha256.Sum256([]byte("ops"))

func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func startedSession(t *testing.T, s *sessions, now time.Time) string {
	t.Helper()
	id, _, err := s.openSession(someAdmin, now)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestAnIdleSessionEnds, and only requests of a person keep it.
func TestAnIdleSessionEnds(t *testing.T) {
	s := newSessions()
	id := startedSession(t, s, noon())
	for _, step := range []struct {
		after  time.Duration
		person bool
		open   bool
	}{
		{29 * time.Minute, true, true},
		{58 * time.Minute, true, true},
		{87 * time.Minute, false, true}, // a page without its person
		{88*time.Minute + time.Second, false, false},
		{88*time.Minute + 2*time.Second, true, false},
	} {
		if _, open := s.findSession(id, step.person, noon().Add(step.after)); open != step.open {
			t.Fatalf("after %v the session is open: %v", step.after, open)
		}
	}
}

// TestASessionEndsAfterItsLife, however often it is used.
func TestASessionEndsAfterItsLife(t *testing.T) {
	s := newSessions()
	id := startedSession(t, s, noon())
	for at := noon(); at.Before(noon().Add(sessionLife)); at = at.Add(20 * time.Minute) {
		if _, open := s.findSession(id, true, at); !open {
			t.Fatalf("the session ended after %v", at.Sub(noon()))
		}
	}
	if _, open := s.findSession(id, true, noon().Add(sessionLife)); open {
		t.Error("the session outlived its life")
	}
}

// TestOnlyDigestsOfSessionsAreKept, so that a dump of the memory opens none.
func TestOnlyDigestsOfSessionsAreKept(t *testing.T) {
	s := newSessions()
	id := startedSession(t, s, noon())
	if len(id) < 43 {
		t.Errorf("the id %q has fewer than 256 bits", id)
	}
	if startedSession(t, s, noon()) == id {
		t.Error("two logins have one id")
	}
	for key := range s.open {
		if string(key[:]) == id {
			t.Error("the id itself is kept")
		}
	}
	s.endSession(id)
	if _, open := s.findSession(id, true, noon()); open || len(s.open) != 1 {
		t.Error("an ended session is open")
	}
}

// TestSessionsAreBounded: one more ends the session that was unused for longest, and expired ones go first.
func TestSessionsAreBounded(t *testing.T) {
	s := newSessions()
	oldest := startedSession(t, s, noon())
	for i := range maxSessions - 1 {
		startedSession(t, s, noon().Add(time.Duration(i+1)*time.Second))
	}
	newest := startedSession(t, s, noon().Add(29*time.Minute))
	if _, open := s.findSession(oldest, true, noon().Add(29*time.Minute)); open || len(s.open) != maxSessions {
		t.Errorf("%d sessions, the oldest is open: %v", len(s.open), open)
	}
	other, _, err := s.openSession(sha256.Sum256([]byte("eyes")), noon().Add(29*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		startedSession(t, s, noon().Add(29*time.Minute+time.Second))
	}
	if _, open := s.findSession(other, false, noon().Add(29*time.Minute)); !open || len(s.open) != maxSessions {
		t.Error("logins of one admin ended the session of another")
	}
	s.endSession(other)
	startedSession(t, s, noon().Add(58*time.Minute))
	if _, open := s.findSession(newest, true, noon().Add(58*time.Minute)); !open || len(s.open) != 5 {
		t.Errorf("%d sessions are left after the others expired", len(s.open))
	}
}

// TestALoginCodeWorksOnceWithinAnHour.
func TestALoginCodeWorksOnceWithinAnHour(t *testing.T) {
	s := newSessions()
	code, err := s.newCode(someAdmin, noon())
	if err != nil {
		t.Fatal(err)
	}
	if admin, ok := s.takeCode(code, noon().Add(codeLife-time.Second)); !ok || admin != someAdmin {
		t.Error("a new code is rejected")
	}
	if _, ok := s.takeCode(code, noon()); ok {
		t.Error("a code worked twice")
	}
	late, err := s.newCode(someAdmin, noon())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.takeCode(late, noon().Add(codeLife)); ok {
		t.Error("a code worked after an hour")
	}
	if _, ok := s.takeCode("", noon()); ok {
		t.Error("no code opened a session")
	}
}
