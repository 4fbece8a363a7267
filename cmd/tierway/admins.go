package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tierway/store"
	"tierway/tenants"
)

// createAdmin makes a key of the admin plane: the way in for whoever missed the
// gateway's bootstrap secret.
func (f *createFlags) createAdmin(c *cobra.Command) error {
	secret, a, err := f.adminKey(time.Now())
	if err != nil {
		return err
	}
	file, err := loadConfig(c, f.place.config)
	if err != nil {
		return err
	}
	for _, k := range file.Admin.Keys {
		if k.Name == a.Name {
			return fmt.Errorf("--name %q: is an admin in %s already; choose another name", a.Name, f.place.config)
		}
	}
	d, err := newDatabase(c, file, f.place.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	a.CreatedBy = d.actor.Name
	made, err := d.createAdmin(ctx, a)
	if err = errors.Join(err, d.close()); err != nil {
		return err
	}
	return f.printAdmin(c.OutOrStdout(), made, secret, reachable(file.Admin.Listen, file.Admin.TLS))
}

// adminKey returns what the flags ask for, with the key.
func (f *createFlags) adminKey(now time.Time) (secret string, a store.Admin, err error) {
	if f.name == "" {
		return "", a, errors.New("--name is missing: name whose admin key it is, such as --name jane")
	}
	if err := checkAdminName(f.name); err != nil {
		return "", a, err
	}
	role := f.role
	if role == "" {
		role = store.RoleAdmin
	}
	if role != store.RoleAdmin && role != store.RoleViewer {
		return "", a, fmt.Errorf("--role %q: write %s or %s", f.role, store.RoleAdmin, store.RoleViewer)
	}
	ends, err := expiry(f.expires, now)
	if err != nil {
		return "", a, err
	}
	if secret, err = tenants.NewKey(rand.Reader, tenants.AdminPrefix); err != nil {
		return "", a, err
	}
	id, err := tenants.NewID(rand.Reader)
	if err != nil {
		return "", a, err
	}
	return secret, store.Admin{ID: id, Name: f.name, Role: role, Hint: tenants.Hint(secret), Digest: tenants.Digest(secret), ExpiresAt: ends}, nil
}

// checkAdminName checks an admin's name by the rule of the admin API.
func checkAdminName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if len(name) > 63 || strings.Trim(name, letters+"._@-") != "" || !strings.Contains(letters, name[:1]) {
		return fmt.Errorf("--name %q: write 1 to 63 letters, digits and . _ @ -, beginning with a letter or digit", name)
	}
	return nil
}

// createAdmin makes an admin.
func (d *database) createAdmin(ctx context.Context, a store.Admin) (store.Admin, error) {
	if _, err := d.ready(ctx, true); err != nil {
		return a, err
	}
	made, err := d.sql.CreateAdmin(ctx, d.actor, a)
	if errors.Is(err, store.ErrExists) {
		return a, fmt.Errorf("--name %q: is an admin already; choose another name", a.Name)
	}
	if err != nil {
		return a, d.explain(err)
	}
	d.tell(ctx)
	return made, nil
}

// printAdmin writes the new admin key, once. api is the admin plane's address.
func (f *createFlags) printAdmin(w io.Writer, a store.Admin, secret, api string) error {
	switch {
	case f.quiet:
		_, err := fmt.Fprintln(w, secret)
		return err
	case f.json:
		return printJSON(w, struct {
			Admin  store.Admin `json:"admin"`
			Secret string      `json:"secret"`
		}{a, secret})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "key\t%s\n", secret)
	fmt.Fprintf(t, "id\t%s\n", a.ID)
	fmt.Fprintf(t, "admin\t%s\n", a.Name)
	fmt.Fprintf(t, "role\t%s\n", a.Role)
	fmt.Fprintf(t, "expires\t%s\n", instant(a.ExpiresAt, "never"))
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nThe key is not shown again. With it in "+adminKeyVariable+":\n\ntierway keys list --api "+api)
	return err
}
