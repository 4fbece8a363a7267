package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/config"
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
		return f.output.printMade(c.OutOrStdout(), made, " To send a first request, set TIERWAY_KEY to it and run:\n\n"+
			firstRequest(d.file, made.Key))
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
