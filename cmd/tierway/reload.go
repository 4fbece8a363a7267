package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/server/admin"
	"tierway/server/control"
)

type reloadFlags struct {
	api          string
	dryRun, json bool
}

func reloadCommand() *cobra.Command {
	var f reloadFlags
	c := &cobra.Command{
		Use:   "reload",
		Short: "Let a gateway reload its configuration, or show what would change",
		Example: "  TIERWAY_ADMIN_KEY=tw-adm-… tierway reload --dry-run\n" +
			"  TIERWAY_ADMIN_KEY=tw-adm-… tierway reload --api http://127.0.0.1:8081",
		Long: "The whole file is applied, or nothing if it has a problem. In-flight requests are not affected.\n" +
			"Exit status: 0 applied, 1 invalid configuration, 2 wrong usage.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVar(&f.api, "api", defaultAdminURL(), "URL of the gateway's admin plane; its key comes from $"+
		adminKeyVariable)
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change without applying it")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

func (f reloadFlags) run(c *cobra.Command) error {
	a, err := newAdminAPI(f.api, os.LookupEnv)
	if err != nil {
		return err
	}
	path := "/admin/reload"
	if f.dryRun {
		path += "?dry_run=true"
	}
	var result admin.ReloadAnswer
	answer, err := a.call(c.Context(), http.MethodPost, path, nil, &result)
	if err != nil {
		return showProblems(c, err)
	}
	if f.json {
		return printJSON(c.OutOrStdout(), answer)
	}
	for _, p := range result.Problems {
		p.Warning = p.Severity == "warning"
		fmt.Fprintln(c.ErrOrStderr(), plain(p.Problem.String()))
	}
	return printReload(c.OutOrStdout(), result)
}

// invalidOrder is the detail of a refusal with errors in the request, not in the
// configuration.
const invalidOrder = "validation failed"

// showProblems prints the problems of a configuration that the gateway rejected, and returns
// exit status 1. It returns other errors unchanged.
func showProblems(c *cobra.Command, err error) error {
	var r *refusal
	if !errors.As(err, &r) || r.Status != http.StatusUnprocessableEntity || len(r.Errors) == 0 ||
		r.Detail == invalidOrder {
		return err
	}
	for _, e := range r.Errors {
		fmt.Fprintln(c.ErrOrStderr(), plain(e.Message))
	}
	printMessage(c, "%s", plain(r.Detail))
	return exit(1)
}

func printReload(w io.Writer, r admin.ReloadAnswer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, ch := range r.Changes {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", ch.Effect, ch.Op, plain(ch.Path), plain(change(ch)))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	for _, line := range impactLines(r.Impact) {
		fmt.Fprintln(w, line)
	}
	if r.DryRun {
		_, err := fmt.Fprintf(w, "%s, not applied: generation %d stays active\n", counted(len(r.Changes), "change"),
			r.Generation)
		return err
	}
	_, err := fmt.Fprintln(w, reloadSummary(len(r.Changes), len(r.Impact.RestartNeeded), r.Generation))
	return err
}

// reloadSummary returns the result of a reload in one line. It counts all changes, as the log and the
// audit log of the gateway do, and then those of them that need a restart.
func reloadSummary(changes, restarts int, generation int64) string {
	needs := "need a restart"
	if restarts == 1 {
		needs = "needs a restart"
	}
	switch {
	case restarts > 0 && restarts == changes:
		return fmt.Sprintf("%s %s: generation %d stays active", counted(changes, "change"), needs, generation)
	case restarts > 0:
		return fmt.Sprintf("%s, applied as generation %d; %d of them %s", counted(changes, "change"), generation, restarts,
			needs)
	}
	return fmt.Sprintf("%s, applied as generation %d", counted(changes, "change"), generation)
}

// counted returns a number with its noun, in the plural if needed.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// change returns the values of a change.
func change(c config.Change) string {
	switch c.Op {
	case "add":
		return c.New
	case "remove":
		return c.Old
	}
	return c.Old + " → " + c.New
}

func impactLines(im control.Impact) []string {
	var lines []string
	list := func(what string, names []string) {
		if len(names) > 0 {
			lines = append(lines, what+plain(strings.Join(names, ", ")))
		}
	}
	list("workers added: ", im.WorkersAdded)
	list("workers removed after their in-flight requests: ", im.WorkersRemoved)
	for _, pool := range slices.Sorted(maps.Keys(im.AffinityMoved)) {
		if share := im.AffinityMoved[pool]; share > 0 {
			lines = append(lines, fmt.Sprintf("%s: %.1f %% of prompts move to another worker", plain(pool), 100*share))
		}
	}
	list("restart needed: ", im.RestartNeeded)
	return lines
}
