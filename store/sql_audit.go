package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

const (
	auditUsual = 50  // entries of a query without a limit: one page
	auditMost  = 200 // maximum entries of any query
	verifyPage = 1000
)

func auditColumns(e *AuditEntry) []column {
	return []column{
		intColumn("id", &e.ID), timeColumn("at", &e.At), textColumn("actor", &e.Actor), textColumn("role", &e.Role),
		textColumn("via", &e.Via), textColumn("ip", &e.IP), textColumn("request_id", &e.RequestID),
		textColumn("action", &e.Action), textColumn("target", &e.Target), textColumn("before_json", &e.Before),
		textColumn("after_json", &e.After), textColumn("outcome", &e.Outcome), textColumn("hash", &e.Hash),
	}
}

// entry returns a new entry of the audit log.
func (a Actor) entry(now time.Time, action, target string) AuditEntry {
	return AuditEntry{
		At:        now,
		Actor:     a.Name,
		Role:      a.Role,
		Via:       a.Via,
		IP:        a.IP,
		RequestID: a.RequestID,
		Action:    action,
		Target:    target,
	}
}

// entry returns the change as an entry of the audit log.
func (e edit) entry(a Actor, now time.Time) (AuditEntry, error) {
	entry := a.entry(now, e.action, e.target)
	entry.Outcome = "ok"
	for _, side := range []struct {
		from any
		to   *string
	}{{e.before, &entry.Before}, {e.after, &entry.After}} {
		if side.from == nil {
			continue
		}
		text, err := json.Marshal(side.from)
		if err != nil {
			return AuditEntry{}, fmt.Errorf("writing the audit entry: %w", err)
		}
		*side.to = string(text)
	}
	return entry, nil
}

// appendAudit appends an entry to the chain and sets its id and hash. Locking the row of revision keeps
// the entries in one order.
func appendAudit(ctx context.Context, tx *sql.Tx, e *AuditEntry) error {
	var before string
	if err := tx.QueryRowContext(ctx, "UPDATE revision SET audit_id = audit_id + 1 RETURNING audit_id, audit_hash").Scan(
		&e.ID, &before); err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	for _, text := range []*string{&e.Actor, &e.Role, &e.Via, &e.IP, &e.RequestID, &e.Action, &e.Target, &e.Before,
		&e.After, &e.Outcome} {
		*text = clean(*text)
	}
	e.Hash = chain(before, e)
	if err := insert(ctx, tx, "audit", auditColumns(e)); err != nil {
		return fmt.Errorf("writing the audit log: %w", err)
	}
	_, err := tx.ExecContext(ctx, "UPDATE revision SET audit_hash = $1", e.Hash)
	return err
}

// chain returns the hash of an entry: SHA-256 of a JSON array of the previous hash and the entry's
// fields. A field that is added later is part of the array only if it is not empty, so that the
// hashes of older entries stay valid.
func chain(before string, e *AuditEntry) string {
	text, _ := json.Marshal([]string{before, strconv.FormatInt(e.ID, 10), strconv.FormatInt(micros(e.At), 10), e.Actor,
		e.Role, e.Via,
		e.IP, e.RequestID, e.Action, e.Target, e.Before, e.After, e.Outcome}) // marshalling strings cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// AppendAudit records an action that changes nothing in the database, such as a reload or a
// refusal. before and after are JSON or empty and must not hold secrets.
func (s *SQL) AppendAudit(ctx context.Context, a Actor, action, target, before, after, outcome string) error {
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	e := a.entry(stamp(time.Now()), action, target)
	e.Before, e.After, e.Outcome = before, after, outcome
	err := s.transact(ctx, func(tx *sql.Tx) error { return appendAudit(ctx, tx, &e) })
	if err == nil {
		s.recordAudit(e.ID)
	}
	return s.fail(ctx, fmt.Sprintf("writing %q to the audit log", action), err)
}

// recordAudit records the id of an entry that this process has written.
func (s *SQL) recordAudit(id int64) {
	for newest := s.audited.Load(); id > newest; newest = s.audited.Load() {
		if s.audited.CompareAndSwap(newest, id) {
			return
		}
	}
}

// NewestAudit returns the id of the newest entry of the audit log that this process has written, or 0
// if it has written none. It makes no query.
func (s *SQL) NewestAudit() int64 { return s.audited.Load() }

// Audit returns the entries that match all conditions of the query, newest first. Conditions are
// compared literally, without wildcards.
func (s *SQL) Audit(ctx context.Context, q AuditQuery) ([]AuditEntry, error) {
	ctx, done := context.WithTimeout(ctx, searchTimeout)
	defer done()
	filter, args := where(
		condition{q.Actor != "", "actor =", clean(q.Actor)}, condition{q.Action != "", "action =", clean(q.Action)},
		condition{q.Target != "", "target =", clean(q.Target)},
		condition{!q.Since.IsZero(), "at >=", micros(q.Since)}, condition{q.Before > 0, "id <", q.Before})
	limit := auditUsual
	if q.Limit > 0 {
		limit = min(q.Limit, auditMost)
	}
	all, err := collect(ctx, s.read, auditColumns, "FROM audit"+filter+" ORDER BY id DESC LIMIT "+strconv.Itoa(limit),
		args...)
	return all, s.fail(ctx, "reading the audit log", err)
}

// VerifyAudit reads the whole audit log and checks that no entry was changed, inserted or removed.
// brokenAt is the id of the first wrong or missing entry, or 0 if the log is intact. entries counts
// the entries before it.
func (s *SQL) VerifyAudit(ctx context.Context) (entries, brokenAt int64, err error) {
	err = s.snapshot(ctx, "reading the audit log", longTimeout, func(ctx context.Context, tx *sql.Tx) error {
		var end int64
		var hash, endHash string
		if err := tx.QueryRowContext(ctx, "SELECT audit_id, audit_hash FROM revision").Scan(&end, &endHash); err != nil {
			return err
		}
		for {
			page, err := collect(ctx, tx, auditColumns, "FROM audit WHERE id > $1 ORDER BY id LIMIT "+strconv.Itoa(verifyPage),
				entries)
			if err != nil {
				return err
			}
			for i := range page {
				e := &page[i]
				if e.ID > end || e.ID != entries+1 || e.Hash != chain(hash, e) {
					brokenAt = entries + 1
					return nil
				}
				entries, hash = e.ID, e.Hash
			}
			if len(page) == 0 {
				break
			}
		}
		switch {
		case entries < end:
			brokenAt = entries + 1
		case hash != endHash:
			brokenAt = max(end, 1)
		}
		return nil
	})
	return entries, brokenAt, err
}
