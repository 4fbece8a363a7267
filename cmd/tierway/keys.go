package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

func keysCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Create, list, rotate and revoke keys",
		Example: "  tierway keys create -c config.yaml --tenant acme --rpm 60\n" +
			"  tierway keys list -c config.yaml\n" +
			"  TIERWAY_ADMIN_KEY=tw-adm-… tierway keys list --api http://127.0.0.1:8081",
		Long: "Without --api, keys are changed directly in the configuration's database; no gateway has to run.",
	}
	return group(c, createKeyCommand(), listKeysCommand(), rotateKeyCommand(), revokeKeyCommand())
}

// group makes c a command with subcommands. Without arguments it prints its help; an unknown
// subcommand is an error.
func group(c *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	c.AddCommand(verbs...)
	c.DisableFlagsInUseLine = true
	c.SuggestionsMinimumDistance = 2 // up to two typing errors
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		hint := "`" + c.CommandPath() + " --help` lists them"
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "did you mean " + near[0] + "?"
		}
		return fmt.Errorf("unknown command %q for %s (%s)", plain(args[0]), c.CommandPath(), hint)
	}
	return c
}

// keyStore is the place of keys: a database, or a gateway in front of it. Errors name the value
// and the way out.
type keyStore interface {
	// create creates a key of k's tenant with k's name, rights, limits and expiry, and the tenant if
	// it does not exist.
	create(ctx context.Context, k tenants.Key) (madeKey, error)
	// list returns the keys of a tenant, or all keys for an empty name.
	list(ctx context.Context, tenant string) ([]tenants.Key, error)
	// rotate creates a key that replaces the one with this ID, which stays valid for overlap.
	rotate(ctx context.Context, id string, overlap time.Duration) (madeKey, error)
	// revoke invalidates a key immediately. Revoking it again is not an error.
	revoke(ctx context.Context, id, reason string) (tenants.Key, error)
}

// madeKey is a new key. Only Secret contains the key itself.
type madeKey struct {
	tenants.Key
	Secret    string
	NewTenant bool         // the tenant was created with it
	Old       *tenants.Key // the replaced key; may be nil
	Warnings  []string     // rights and limits without effect
}

// keyPlace holds the flags that select the place of keys.
type keyPlace struct {
	config, api string
}

func (p *keyPlace) flags(c *cobra.Command) {
	c.Flags().StringVarP(&p.config, "config", "c", "config.yaml", "configuration file that names the database of keys")
	c.Flags().StringVar(&p.api, "api", "", "URL of a gateway's admin plane, instead of the database; its key comes from $"+
		adminKeyVariable)
	c.MarkFlagsMutuallyExclusive("config", "api")
}

// patience is the time limit of one command.
const patience = 30 * time.Second

// with calls work with the keyStore of the flags. file is nil with --api.
func (p *keyPlace) with(c *cobra.Command, work func(ctx context.Context, s keyStore, file *config.File) error) error {
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if c.Flags().Changed("api") { // an empty --api is an error and does not select the database
		a, err := newAdminAPI(p.api, os.LookupEnv)
		if err != nil {
			return err
		}
		return work(ctx, gatewayKeys{a}, nil)
	}
	return withDatabase(c, p.config, func(d *database) error { return work(ctx, d, d.file) })
}

// operator returns the user of the command, for the audit log.
func operator() store.Actor {
	a := store.Actor{Name: "cli", Via: "cli"}
	if u, err := user.Current(); err == nil && u.Username != "" {
		a.Name = u.Username
	}
	return a
}

// printMessage prints a message to the message output.
func printMessage(c *cobra.Command, format string, args ...any) {
	fmt.Fprintln(c.ErrOrStderr(), "tierway: "+fmt.Sprintf(format, args...))
}

// printJSON prints data as JSON.
func printJSON(w io.Writer, data any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(data)
}

// plain replaces control characters, which could control a terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}
