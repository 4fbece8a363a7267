package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "audit",
		Short:   "Verify the audit log in the database",
		Example: "  tierway audit verify -c config.yaml",
	}
	var path string
	verify := &cobra.Command{
		Use:     "verify",
		Short:   "Verify that no entry of the audit log was modified, inserted or removed",
		Example: "  tierway audit verify -c config.yaml",
		Long: "Each entry contains a hash of itself and of the previous entry, and the database\n" +
			"contains the hash of the last entry. Exit status: 0 intact, 1 modified, 2 no database or wrong usage.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return withDatabase(c, path, func(d *database) error { return verifyAudit(c, d) })
		},
	}
	verify.Flags().StringVarP(&path, "config", "c", "config.yaml", "configuration file that names the database")
	return group(c, verify)
}

// verifyAudit has no time limit, because an audit log may be long.
func verifyAudit(c *cobra.Command, d *database) error {
	empty, err := d.ready(c.Context(), false)
	if err != nil {
		return err
	}
	if empty {
		return fmt.Errorf("%s has no audit log to verify: check store.sql, or start a gateway once", d.name())
	}
	entries, broken, err := d.sql.VerifyAudit(c.Context())
	if err != nil {
		return d.explain(err)
	}
	if broken > 0 {
		fmt.Fprintf(c.OutOrStdout(),
			"%s: entry %d of the audit log was modified, inserted or removed; the %d entries before it are intact\n", d.name(),
			broken, entries)
		return exit(1)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: all %d entries of the audit log are intact\n", d.name(), entries)
	return err
}
