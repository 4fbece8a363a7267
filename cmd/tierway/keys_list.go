package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tierway/tenants"
)

func listKeysCommand() *cobra.Command {
	var path, tenant string
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "List keys and their state; the keys themselves are not stored",
		Example: "  tierway keys list -c config.yaml\n  tierway keys list -c config.yaml --tenant acme --json",
		Long:    "Times are in UTC. A key in the state grace was replaced and is still valid.",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if tenant != "" && !tenants.Slug(tenant) {
				return fmt.Errorf("--tenant %q: is not a tenant name; write 1 to 63 of a-z, 0-9 and -", tenant)
			}
			return changeKeys(c, path, func(ctx context.Context, d *database) error {
				keys, err := d.list(ctx, tenant)
				if err != nil {
					return err
				}
				return printKeys(c, keys, tenant, asJSON)
			})
		},
	}
	configFlag(c, &path)
	c.Flags().StringVar(&tenant, "tenant", "", "list only keys of this tenant (default all tenants)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// printKeys prints keys by tenant, the oldest first. tenant is the filter; empty for all
// tenants.
func printKeys(c *cobra.Command, keys []tenants.Key, tenant string, asJSON bool) error {
	slices.SortStableFunc(keys, func(a, b tenants.Key) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), a.CreatedAt.Compare(b.CreatedAt))
	})
	if asJSON {
		all := make([]shownKey, len(keys))
		for i, k := range keys {
			all[i] = shown(k)
		}
		return printJSON(c.OutOrStdout(), map[string]any{"keys": all})
	}
	if len(keys) == 0 {
		of := ""
		if tenant != "" {
			of = " of the tenant " + tenant
		}
		printMessage(c, "there are no keys%s; `tierway keys create` creates one", of)
		return nil
	}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tTENANT\tNAME\tHINT\tSTATE\tCREATED\tEXPIRES\tLAST USED\tLIMITS")
	for _, k := range keys {
		fmt.Fprintln(t,
			strings.Join([]string{k.ID, k.Tenant, cmp.Or(plain(k.Name), "-"), k.Hint, k.State(time.Now()),
				instant(k.CreatedAt, "-"),
				instant(k.ExpiresAt, "never"), instant(k.LastUsedAt, "-"), cmp.Or(limitsText(k.Limits), "-")}, "\t"))
	}
	return t.Flush()
}
