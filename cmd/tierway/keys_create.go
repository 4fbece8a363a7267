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

type createFlags struct {
	config            string
	tenant, name      string
	limits            tenants.Limits
	tiers, models     []string
	priority, expires string
	admin             bool
	role              string
	output            keyOutput
}

func createKeyCommand() *cobra.Command {
	var f createFlags
	c := &cobra.Command{
		Use:   "create",
		Short: "Create a key, and its tenant if it is new",
		Example: "  tierway keys create -c config.yaml --tenant acme --name ci --rpm 60 --tiers small,medium --expires 720h\n" +
			"  KEY=$(tierway keys create -c config.yaml --tenant acme --quiet)\n" +
			"  tierway keys create -c config.yaml --admin --name jane",
		Long: "The key is shown only once. Its limits and rights apply in addition to those of its tenant.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.admin {
				if err := onlyForTenants(c); err != nil {
					return err
				}
				return f.createAdmin(c)
			}
			return f.create(c)
		},
	}
	configFlag(c, &f.config)
	c.Flags().StringVar(&f.tenant, "tenant", "", "tenant of the key: 1 to 63 of a-z, 0-9 and -")
	c.Flags().StringVar(&f.name, "name", "", "label of the key; with --admin: name of its holder")
	c.Flags().Var(count{&f.limits.RPM, maxRequests}, "rpm", "requests per minute")
	c.Flags().Var(count{&f.limits.RPS, maxRequests}, "rps", "requests per second")
	c.Flags().Var(count{&f.limits.Burst, maxRequests}, "burst", "requests at once (default a sixth of --rpm, or --rps)")
	c.Flags().Var(count{&f.limits.TPM, maxTokens}, "tpm", "tokens per minute, prompts and outputs")
	c.Flags().Var(count{&f.limits.Concurrent, maxRequests}, "concurrent", "in-flight requests")
	c.Flags().StringSliceVar(&f.tiers, "tiers", nil, "tiers and pools that the key may use (default all)")
	c.Flags().StringSliceVar(&f.models, "models", nil, "globs of model names that the key may request (default all)")
	c.Flags().StringVar(&f.priority, "priority", "", "highest priority class that the key may request: "+
		strings.Join(tenants.Classes(), ", "))
	c.Flags().StringVar(&f.expires, "expires", "",
		"expiry: a duration such as 720h, a date such as 2027-01-31 (0:00 UTC) or an RFC 3339 time (default never)")
	c.Flags().BoolVar(&f.admin, "admin", false, "create a key of the admin plane in the database")
	c.Flags().StringVar(&f.role, "role", "", "with --admin: admin, or viewer, which may change nothing (default admin)")
	f.output.flags(c)
	return c
}

// onlyForTenants rejects flags that do not apply to an admin key.
func onlyForTenants(c *cobra.Command) error {
	for _, name := range []string{"tenant", "rpm", "rps", "burst", "tpm", "concurrent", "tiers", "models", "priority"} {
		if flag := c.Flags().Lookup(name); flag.Changed {
			return fmt.Errorf("--%s %s: applies only to tenants' keys; remove it, or remove --admin", name, flag.Value)
		}
	}
	return nil
}

func (f *createFlags) create(c *cobra.Command) error {
	k, err := f.key(time.Now())
	if err != nil {
		return err
	}
	return changeKeys(c, f.config, func(ctx context.Context, d *database) error {
		if err := checkRights(d.file, k.Rights); err != nil {
			return err
		}
		made, err := d.create(ctx, k)
		if err != nil {
			return err
		}
		if made.NewTenant {
			printMessage(c, "created the tenant %s without limits; the flags apply to this key only", made.Tenant)
		}
		return f.output.printMade(c.OutOrStdout(), made, " It works within 1 s. To send a first request, set "+
			"TIERWAY_KEY to it and run:\n\n"+firstRequest(d.file, made.Key))
	})
}

// firstRequest returns a curl command that works with the key k: a chat request if the
// configuration allows one, else a list of the key's models.
func firstRequest(file *config.File, k tenants.Key) string {
	const credential = ` -H "Authorization: Bearer $TIERWAY_KEY"`
	base := reachable(file.Listen, file.TLS)
	if len(file.Tiers) == 0 || k.Models != nil || k.Tiers != nil {
		return "curl -s " + base + "/v1/models" + credential
	}
	return "curl -s " + base + "/v1/chat/completions" + credential +
		` -H 'Content-Type: application/json' -d '{"model":"auto","max_tokens":20,"messages":[{"role":"user","content":"Say hello"}]}'`
}

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
