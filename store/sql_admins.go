package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"
)

func adminColumns(ad *Admin) []column {
	return []column{
		textColumn("id", &ad.ID), textColumn("name", &ad.Name), textColumn("role", &ad.Role), textColumn("hint", &ad.Hint),
		digestColumn("digest", &ad.Digest), textColumn("created_by", &ad.CreatedBy),
		timeColumn("created_at", &ad.CreatedAt), timeColumn("expires_at", &ad.ExpiresAt),
	}
}

// CreateAdmin adds an admin and returns it as stored. An expired admin of the same name is
// replaced. It returns ErrExists if a valid admin has the name, or if the id or digest is in use.
func (s *SQL) CreateAdmin(ctx context.Context, a Actor, ad Admin) (Admin, error) {
	err := s.change(ctx, a, fmt.Sprintf("creating admin %q", ad.Name),
		func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
			return addAdmin(ctx, tx, "admin.create", a, &ad, now)
		})
	return ad, err
}

// Bootstrap adds the first admin. It returns ErrExists if a valid admin with the role admin exists;
// of several concurrent calls one succeeds.
func (s *SQL) Bootstrap(ctx context.Context, a Actor, ad Admin) (Admin, error) {
	err := s.change(ctx, a, fmt.Sprintf("creating the first admin %q", ad.Name),
		func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
			n, err := adminsBeside(ctx, tx, "", now)
			if err == nil && n > 0 {
				err = ErrExists
			}
			if err != nil {
				return edit{}, err
			}
			return addAdmin(ctx, tx, "admin.bootstrap", a, &ad, now)
		})
	return ad, err
}

func addAdmin(ctx context.Context, tx *sql.Tx, action string, a Actor, ad *Admin, now time.Time) (edit, error) {
	if ad.Role != RoleAdmin && ad.Role != RoleViewer {
		return edit{}, fmt.Errorf("unknown role %q: use %s or %s", ad.Role, RoleAdmin, RoleViewer)
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM admins WHERE name = $1 AND expires_at > 0 AND expires_at <= $2",
		clean(ad.Name), micros(now)); err != nil {
		return edit{}, err
	}
	ad.CreatedBy, ad.CreatedAt, ad.ExpiresAt = clean(a.Name), now, stamp(ad.ExpiresAt)
	return edit{action: action, target: ad.Name, after: *ad}, insert(ctx, tx, "admins", adminColumns(ad))
}

// adminsBeside counts the valid admins with the role admin, except the given one.
func adminsBeside(ctx context.Context, tx *sql.Tx, id string, now time.Time) (n int64, err error) {
	err = tx.QueryRowContext(ctx,
		"SELECT COUNT(*) FROM admins WHERE role = $1 AND id <> $2 AND (expires_at = 0 OR expires_at > $3)",
		RoleAdmin, clean(id), micros(now)).Scan(&n)
	return n, err
}

// DeleteAdmin removes an admin. elsewhere states that there are admins with the role admin outside
// the database. It returns ErrLastAdmin if no admin of that role would remain, and ErrNotFound if
// the id is unknown.
func (s *SQL) DeleteAdmin(ctx context.Context, a Actor, id string, elsewhere bool) error {
	return s.change(ctx, a, fmt.Sprintf("deleting admin %q", id),
		func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
			ad, err := single(collect(ctx, tx, adminColumns, "FROM admins WHERE id = $1", clean(id)))
			if err != nil {
				return edit{}, err
			}
			inForce := ad.ExpiresAt.IsZero() || now.Before(ad.ExpiresAt)
			if ad.Role == RoleAdmin && inForce && !elsewhere {
				if n, err := adminsBeside(ctx, tx, ad.ID, now); err != nil || n == 0 {
					return edit{}, cmp.Or(err, ErrLastAdmin)
				}
			}
			_, err = tx.ExecContext(ctx, "DELETE FROM admins WHERE id = $1", ad.ID)
			return edit{action: "admin.delete", target: ad.Name, before: ad}, err
		})
}
