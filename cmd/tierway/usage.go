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
