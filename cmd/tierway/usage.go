package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// flagGroups checks which flags belong together and rewrites cobra's errors as instructions.
// Unknown errors are returned unchanged.
func flagGroups(c *cobra.Command, _ []string) error {
	err := c.ValidateFlagGroups()
	if err == nil {
		return nil
	}
	_, rest, _ := strings.Cut(err.Error(), "group [")
	group, rule, _ := strings.Cut(rest, "]")
	var given, missing []string
	for _, name := range strings.Fields(group) {
		if c.Flags().Changed(name) {
			given = append(given, "--"+name)
		} else {
			missing = append(missing, "--"+name)
		}
	}
	switch {
	case strings.HasPrefix(rule, " is required"):
		return fmt.Errorf("%s is required; %s --help has examples", strings.Join(missing, " or "), c.CommandPath())
	case strings.HasPrefix(rule, " are set none of the others can be"):
		return errors.New(strings.Join(given, " and ") + ": use only one of them")
	case strings.HasPrefix(rule, " are set they must all be set"):
		return fmt.Errorf("%s is required with %s", strings.Join(missing, " and "), strings.Join(given, " and "))
	}
	return err
}

// noArguments rejects arguments of commands that take only flags.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q: %s takes no arguments, only flags; %s --help has examples", args[0], c.CommandPath(),
		c.CommandPath())
}

// flagError rewrites cobra's errors of flags as instructions. Unknown errors are returned unchanged.
func flagError(c *cobra.Command, err error) error {
	if strings.HasPrefix(err.Error(), "unknown ") {
		return fmt.Errorf("%w (`%s --help` lists the flags)", err, c.CommandPath())
	}
	var invalid interface{ GetValue() string }
	if !errors.As(err, &invalid) {
		return err
	}
	_, name, _ := strings.Cut(err.Error(), ` for "`)
	name, _, _ = strings.Cut(name, `" flag: `)
	f := c.Flags().Lookup(strings.TrimPrefix(name, "--"))
	if f == nil {
		return err
	}
	want := ""
	switch f.Value.Type() {
	case "int", "int64", "uint64":
		want = "an integer"
		if f.DefValue != "0" {
			want += ", such as " + f.DefValue
		}
	case "float64":
		want = "a number"
	case "float64Slice":
		want = "numbers, such as 0.5,1,2"
	default:
		return err
	}
	return fmt.Errorf("--%s %q: write %s", f.Name, plain(invalid.GetValue()), want)
}
