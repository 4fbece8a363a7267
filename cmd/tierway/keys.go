package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tierway/store"
	"tierway/tenants"
)

func keysCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Create, list, rotate and revoke keys",
		Example: "  tierway keys create -c config.yaml --tenant acme --rpm 60\n" +
			"  tierway keys list -c config.yaml",
		Long: "Keys are changed in the configuration's database. No gateway has to run; gateways that run apply the change.",
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

// madeKey is a new key. Only Secret contains the key itself.
type madeKey struct {
	tenants.Key
	Secret    string
	NewTenant bool         // the tenant was created with it
	Old       *tenants.Key // the replaced key; may be nil
}

// configFlag adds the flag of the configuration; its database has the keys.
func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", "config.yaml", "configuration file that names the database of keys")
}

const patience = 30 * time.Second

// changeKeys calls change with the database of the configuration at path, and with the time limit of a command.
func changeKeys(c *cobra.Command, path string, change func(ctx context.Context, d *database) error) error {
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	return withDatabase(c, path, func(d *database) error { return change(ctx, d) })
}

// operator returns the user of the command, for the audit log.
func operator() store.Actor {
	a := store.Actor{Name: "cli", Via: "cli"}
	if u, err := user.Current(); err == nil && u.Username != "" {
		a.Name = u.Username
	}
	return a
}

func printMessage(c *cobra.Command, format string, args ...any) {
	fmt.Fprintln(c.ErrOrStderr(), "tierway: "+fmt.Sprintf(format, args...))
}

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
