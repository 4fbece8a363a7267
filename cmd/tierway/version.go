package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  tierway version",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "tierway %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS,
				runtime.GOARCH)
			return err
		},
	}
}
