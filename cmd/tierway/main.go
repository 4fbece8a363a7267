// Command tierway is an OpenAI-compatible gateway in front of inference engines. Each
// subcommand is in its own file and connects flags, signals and packages.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
)

// version is the release that this source becomes.
const version = "0.1.0"

func main() {
	silenceLibraries()
	if err := root(os.Stdout, os.Stderr).Execute(); err != nil {
		var quiet exit
		if errors.As(err, &quiet) {
			os.Exit(int(quiet))
		}
		fmt.Fprintln(os.Stderr, "tierway: "+err.Error())
		os.Exit(2)
	}
}

// silenceLibraries turns off the output of libraries to standard output and error, which only
// process-wide settings control: gin lists its routes, and the Redis client reports each failed
// dial, which the gateway logs itself.
func silenceLibraries() {
	gin.SetMode(gin.ReleaseMode)
	logging.Disable()
}

// exit ends the process with a status after all messages were printed.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// root returns the command tree. Data goes to out, messages go to messages.
func root(out, messages io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:     "tierway",
		Version: version,
		Short:   "OpenAI-compatible gateway for self-hosted inference engines",
		Example: "  tierway demo\n  tierway serve -c config.yaml\n  tierway serve --model qwen2.5:7b --worker-urls " +
			"http://127.0.0.1:11434",
		SilenceUsage:  true,
		SilenceErrors: true,

		PersistentPreRunE: flagGroups,
	}
	c.SetOut(out)
	c.SetErr(messages)
	c.CompletionOptions.HiddenDefaultCmd = true
	c.SetHelpTemplate(helpTemplate)
	c.SetFlagErrorFunc(flagError)
	c.AddCommand(serveCommand(), demoCommand(), checkCommand(), explainCommand(), keysCommand(), migrateCommand(),
		auditCommand(), importCommand(), reloadCommand(), replayCommand(), simulateCommand(), featuresCommand(),
		trainCommand(), tiersCommand(), versionCommand())
	return c
}

// helpTemplate prints the examples first, because they answer most questions.
const helpTemplate = `{{.Short}}

{{if .Example}}Examples:
{{.Example}}

{{end}}{{with .Long}}{{.}}

{{end}}Usage:
  {{.UseLine}}{{if .HasAvailableSubCommands}} COMMAND{{end}}
{{if .HasAvailableSubCommands}}
Commands:
{{range .Commands}}{{if .IsAvailableCommand}}  {{rpad .Name .NamePadding}} {{.Short}}
{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}`

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
