package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tierway/config/imports"
)

// importer translates the configuration of another router.
type importer func(src []byte, o imports.Options) (imports.Result, error)

func importCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "import",
		Short: "Make a configuration from that of another router",
		Example: "  tierway import vllm-router start.sh > config.yaml\n" +
			"  tierway import continuum continuum.yaml > config.yaml",
		Long: "The configuration goes to standard output, with a comment where the meaning differs. The settings that it does\n" +
			"not have are listed on standard error, each with the reason and what to write instead. docs/policies.md describes\n" +
			"what to check afterwards.\n\nExit status: 0 written, 1 cannot be imported, 2 wrong usage.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return fmt.Errorf("name the router: vllm-router or continuum; %s --help has examples", c.CommandPath())
		},
	}
	c.AddCommand(importFrom("vllm-router",
		"a command line of vLLM Router or SGLang's router, or the YAML file of its fork",
		"start.sh", imports.VLLMRouter))
	c.AddCommand(importFrom("continuum", "a YAML file of Continuum Router", "continuum.yaml", imports.Continuum))
	return c
}

func importFrom(router, document, example string, translate importer) *cobra.Command {
	var o imports.Options
	c := &cobra.Command{
		Use:     router + " FILE",
		Short:   "Import " + document,
		Example: fmt.Sprintf("  tierway import %s %s > config.yaml\n  tierway check -c config.yaml", router, example),
		Long: "FILE is " + document + "; - is standard input.\n\n" +
			"Exit status: 0 written, 1 cannot be imported, 2 wrong usage.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one FILE, or - for standard input; %s --help has examples", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return runImport(c, args[0], o, translate) },
	}
	c.Flags().StringVar(&o.Model, "model", "", "model that the workers serve, if the file does not name it")
	return c
}

func runImport(c *cobra.Command, file string, o imports.Options, translate importer) error {
	fail := func(err error) error {
		fmt.Fprintf(c.ErrOrStderr(), "tierway: %s cannot be imported:\n%v\n", file, err)
		return exit(1)
	}
	src, err := readFile(c, file, maxConfig)
	if err != nil {
		return fail(err)
	}
	result, err := translate(src, o)
	if err != nil {
		return fail(err)
	}
	if len(result.LeftOut) > 0 {
		fmt.Fprintln(c.ErrOrStderr(), "left out:")
	}
	for _, l := range result.LeftOut {
		fmt.Fprintf(c.ErrOrStderr(), "  %v\n", l)
	}
	_, err = c.OutOrStdout().Write(result.Config)
	return err
}
