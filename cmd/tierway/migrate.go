package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "migrate",
		Short:   "Update the database schema, or show its version",
		Example: "  tierway migrate status -c config.yaml\n  tierway migrate up -c config.yaml",
		Long:    "A gateway updates the schema itself when it starts.",
	}
	return group(c,
		migration("up", "Update the database schema", "", true, migrateUp),
		migration("status", "Show the schema version of the database and the latest one",
			"Exit status: 0 up to date, 1 different, 2 error.", false, migrateStatus))
}

// migration returns a command for the database of a configuration. If fill is set, it creates a
// missing database.
func migration(name, short, long string, fill bool,
	run func(ctx context.Context, c *cobra.Command, d *database) error) *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:     name,
		Short:   short,
		Example: "  tierway migrate " + name + " -c config.yaml",
		Long:    long,
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return withDatabase(c, path, func(d *database) error {
				if err := d.open(fill); err != nil {
					return err
				}
				return run(c.Context(), c, d)
			})
		},
	}
	c.Flags().StringVarP(&path, "config", "c", "config.yaml", "configuration file that names the database")
	return c
}

// migrateUp has no time limit, because migrating a large ledger may take long.
func migrateUp(ctx context.Context, c *cobra.Command, d *database) error {
	m, err := d.sql.Migrate(ctx)
	if err != nil {
		return d.explain(err)
	}
	text := fmt.Sprintf("%s: schema %d → %d", d.name(), m.From, m.To)
	if m.From == m.To {
		text = fmt.Sprintf("%s: schema %d, up to date", d.name(), m.To)
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), text)
	return err
}

func migrateStatus(ctx context.Context, c *cobra.Command, d *database) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	applied, latest, err := d.sql.Schema(ctx)
	if err != nil {
		return d.explain(err)
	}
	if _, err := fmt.Fprintf(c.OutOrStdout(), "%s: schema %d, latest %d\n", d.name(), applied, latest); err != nil {
		return err
	}
	switch {
	case applied < latest:
		printMessage(c, "run `tierway migrate up -c %s`, or start a gateway, which updates the schema", d.path)
		return exit(1)
	case applied == latest+1:
		printMessage(c, "the schema is of the next release: a gateway of this release can serve with it and does not "+
			"change it; commands that write need the next release")
		return exit(1)
	case applied > latest:
		printMessage(c, "%v", d.newer(applied, latest))
		return exit(1)
	}
	return nil
}
