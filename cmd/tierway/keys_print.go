package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tierway/tenants"
)

type keyOutput struct{ quiet, json bool }

func (o *keyOutput) flags(c *cobra.Command) {
	c.Flags().BoolVar(&o.quiet, "quiet", false, "print only the new key")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	c.MarkFlagsMutuallyExclusive("quiet", "json")
}

// print prints a new key once: alone, as JSON with data, or with rows of name and value (empty
// values are omitted) and the next step.
func (o *keyOutput) print(w io.Writer, secret string, data any, rows [][2]string, next string) error {
	switch {
	case o.quiet:
		_, err := fmt.Fprintln(w, secret)
		return err
	case o.json:
		return printJSON(w, data)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][2]string{{"key", secret}}, rows...) {
		if row[1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nThe key is not shown again."+next)
	return err
}

func (o *keyOutput) printMade(w io.Writer, made madeKey, next string) error {
	data := struct {
		Tenant   string    `json:"tenant"`
		Key      shownKey  `json:"key"`
		Secret   string    `json:"secret"`
		Replaced *shownKey `json:"replaced,omitempty"`
	}{Tenant: made.Tenant, Key: shown(made.Key), Secret: made.Secret}
	replaces := ""
	if made.Old != nil {
		data.Replaced = new(shown(*made.Old))
		replaces = made.Old.ID + ", which stays valid until " + instant(made.Old.ExpiresAt, "it is revoked")
	}
	return o.print(w, made.Secret, data, [][2]string{{"id", made.ID}, {"tenant", made.Tenant},
		{"tiers", restriction(made.Tiers)}, {"models", restriction(made.Models)},
		{"priority", highestPriority(made.Priority)}, {"limits", limitsText(made.Limits)},
		{"expires", instant(made.ExpiresAt, "never")}, {"replaces", replaces}}, next)
}

// restriction returns a list of allowed names; empty if all are allowed.
func restriction(names []string) string {
	switch {
	case names == nil:
		return ""
	case len(names) == 0:
		return "none"
	}
	return "only " + plain(strings.Join(names, ", "))
}

// highestPriority describes the limit of a key's priority class; empty if there is none.
func highestPriority(c tenants.Class) string {
	if c == tenants.Interactive {
		return ""
	}
	return "at most " + c.String()
}

type shownKey struct {
	tenants.Key
	State string `json:"state"` // active, grace, expired or revoked, now
}

func shown(k tenants.Key) shownKey { return shownKey{Key: k, State: k.State(time.Now())} }

// instant formats a time for a terminal, in UTC.
func instant(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format("2006-01-02 15:04Z")
}

// limitsText returns the set limits by their names in config.yaml.
func limitsText(l tenants.Limits) string {
	var parts []string
	for field, limit := range reflect.ValueOf(l).Fields() {
		if !limit.IsZero() {
			parts = append(parts, fmt.Sprint(field.Tag.Get("yaml"), " ", limit))
		}
	}
	return strings.Join(parts, ", ")
}

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
