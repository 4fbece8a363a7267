package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// createAdmin creates a key of the admin plane in the database, for operators without the
// bootstrap secret.
func (f *createFlags) createAdmin(c *cobra.Command) error {
	secret, a, err := f.adminKey(time.Now())
	if err != nil {
		return err
	}
	return changeKeys(c, f.config, func(ctx context.Context, d *database) error {
		if slices.ContainsFunc(d.file.Admin.Keys, func(k config.AdminKey) bool { return k.Name == a.Name }) {
			return fmt.Errorf("--name %q: %s already has an admin with this name; choose another name", a.Name, d.path)
		}
		if _, err := d.ready(ctx, true); err != nil {
			return err
		}
		made, err := d.sql.CreateAdmin(ctx, d.actor, a)
		if errors.Is(err, store.ErrExists) {
			return fmt.Errorf("--name %q: the database already has an admin with this name; choose another name", a.Name)
		}
		if err != nil {
			return d.explain(err)
		}
		d.notifyGateways(ctx)
		data := struct {
			Admin  store.Admin `json:"admin"`
			Secret string      `json:"secret"`
		}{made, secret}
		return f.output.print(c.OutOrStdout(), secret, data,
			[][2]string{{"id", made.ID}, {"admin", made.Name}, {"role", made.Role},
				{"expires", instant(made.ExpiresAt, "never")}}, " To use it, set "+adminKeyVariable+
				" to it and run:\n\ncurl -s "+reachable(d.file.Admin.Listen, d.file.Admin.TLS)+
				`/admin/tenants -H "Authorization: Bearer $`+adminKeyVariable+`"`)
	})
}

// adminKey returns the requested admin and its key. Names follow the rule of the admin API.
func (f *createFlags) adminKey(now time.Time) (secret string, a store.Admin, err error) {
	if f.name == "" {
		return "", a, errors.New("--name is missing: write the name of the key's holder, such as --name jane")
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if len(f.name) > 63 || strings.Trim(f.name, letters+"._@-") != "" || !strings.Contains(letters, f.name[:1]) {
		return "", a, fmt.Errorf("--name %q: write 1 to 63 letters, digits and . _ @ -, beginning with a letter or digit",
			f.name)
	}
	role := cmp.Or(f.role, store.RoleAdmin)
	if role != store.RoleAdmin && role != store.RoleViewer {
		return "", a, fmt.Errorf("--role %q: write %s or %s", f.role, store.RoleAdmin, store.RoleViewer)
	}
	ends, err := expiry(f.expires, now)
	if err != nil {
		return "", a, err
	}
	secret, err = tenants.NewKey(rand.Reader, tenants.AdminPrefix)
	id, idErr := tenants.NewID(rand.Reader)
	return secret, store.Admin{
			ID:        id,
			Name:      f.name,
			Role:      role,
			Hint:      tenants.Hint(secret),
			Digest:    tenants.Digest(secret),
			ExpiresAt: ends,
		},
		errors.Join(err, idErr)
}
