package main

import (
	"strings"
	"testing"
)

// TestAuditVerifyNamesTheFirstChangedEntry changes, removes and appends
// entries without the program.
func TestAuditVerifyNamesTheFirstChangedEntry(t *testing.T) {
	for name, c := range map[string]struct {
		tamper string
		status int
		says   string
	}{
		"untouched": {"", 0, "all 6 entries of the audit log are intact"},
		"changed": {"UPDATE audit SET actor = 'nobody' WHERE id = 2", 1,
			"entry 2 of the audit log was modified, inserted or removed; the 1 entries before it"},
		"removed":         {"DELETE FROM audit WHERE id = 1", 1, "entry 1 of the audit log"},
		"the last is cut": {"DELETE FROM audit WHERE id = 6", 1, "entry 6 of the audit log"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, "")
			for _, tenant := range []string{"a", "b", "c"} { // an entry for the tenant and one for its key
				must(t, "keys", "create", "-c", h.config, "--tenant", tenant)
			}
			if c.tamper != "" {
				h.execute(t, "DROP TRIGGER audit_keeps_entries")
				h.execute(t, "DROP TRIGGER audit_keeps_words")
				h.execute(t, c.tamper)
			}
			s := tierway(t, "audit", "verify", "-c", h.config)
			if s.status != c.status || !strings.Contains(s.out, c.says) || !strings.Contains(s.out, h.database) {
				t.Errorf("status %d, %s%s; want %d, %s", s.status, s.out, s.messages, c.status, c.says)
			}
		})
	}
}

// TestAuditVerifyNeedsADatabase: the error names the missing setting.
func TestAuditVerifyNeedsADatabase(t *testing.T) {
	h := newHouse(t, "")
	if s := tierway(t, "audit", "verify", "-c", h.config); s.status != 2 || !strings.Contains(s.messages, "no audit log") {
		t.Errorf("of an absent database: status %d, %s%s", s.status, s.out, s.messages)
	}
	write(t, h.config, "tiers: [{ name: small, model: m, workers: [{ name: w, url: \"http://127.0.0.1:9\" }] }]\nauth: "+
		"{ required: false }\nstore: { sql: \"\" }\n")
	if s := tierway(t, "audit", "verify", "-c", h.config); s.status != 2 || !strings.Contains(s.messages, "store.sql") {
		t.Errorf("without a database: status %d, %s%s", s.status, s.out, s.messages)
	}
}
