package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Validity of a replaced key. A day suffices to roll out a secret. The maximum of a week, which the
// admin API shares, keeps old keys from being forgotten.
const (
	usualOverlap = 24 * time.Hour
	maxOverlap   = 7 * 24 * time.Hour
)

// maxReason limits the reason of a revocation, in bytes, as in the admin API.
const maxReason = 200

func rotateKeyCommand() *cobra.Command {
	var path string
	var overlap time.Duration
	var output keyOutput
	c := &cobra.Command{
		Use:   "rotate ID",
		Short: "Create a key that replaces another one; both work for the overlap",
		Example: "  tierway keys rotate -c config.yaml 4fJq0aTn2KwZ\n" +
			"  KEY=$(tierway keys rotate -c config.yaml 4fJq0aTn2KwZ --overlap 1h --quiet)",
		Long: "The new key has the tenant, name, rights and limits of the old key. It is shown only once.",
		Args: oneID,
		RunE: func(c *cobra.Command, args []string) error {
			if overlap < 0 || overlap > maxOverlap {
				return fmt.Errorf("--overlap %v: write how long the old key stays valid, from 0s (not at all) to %v", overlap,
					maxOverlap)
			}
			return changeKeys(c, path, func(ctx context.Context, d *database) error {
				made, err := d.rotate(ctx, args[0], overlap)
				if err != nil {
					return err
				}
				return output.printMade(c.OutOrStdout(), made, "")
			})
		},
	}
	configFlag(c, &path)
	c.Flags().DurationVar(&overlap, "overlap", usualOverlap, "time for which the old key stays valid")
	output.flags(c)
	return c
}

func revokeKeyCommand() *cobra.Command {
	var path string
	var reason string
	var yes, asJSON bool
	c := &cobra.Command{
		Use:     "revoke ID",
		Short:   "Invalidate a key immediately",
		Example: "  tierway keys revoke -c config.yaml 4fJq0aTn2KwZ --reason 'left in a log' --yes",
		Long:    "In-flight requests finish. Asks for confirmation at a terminal; otherwise --yes is required.",
		Args:    oneID,
		RunE: func(c *cobra.Command, args []string) error {
			if len(reason) > maxReason || plain(reason) != reason {
				return fmt.Errorf("--reason %q: write at most %d printable characters", plain(reason), maxReason)
			}
			if err := confirm(c, yes, "Revoke the key "+plain(args[0])+"? Requests with this key will be rejected."); err !=
				nil {
				return err
			}
			return changeKeys(c, path, func(ctx context.Context, d *database) error {
				k, err := d.revoke(ctx, args[0], reason)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), map[string]any{"key": shown(k)})
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "key %s of tenant %s: revoked at %s\n", k.ID, k.Tenant,
					instant(k.RevokedAt, "now"))
				return err
			})
		},
	}
	configFlag(c, &path)
	c.Flags().StringVar(&reason, "reason", "", "reason for the audit log")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// oneID requires one argument, the ID of a key. It rejects a key in its place without repeating
// it.
func oneID(_ *cobra.Command, args []string) error {
	switch {
	case len(args) != 1:
		return fmt.Errorf("write one key ID; `tierway keys list` shows them")
	case strings.HasPrefix(args[0], "tw-"):
		return errors.New(
			"this is a key, not its ID; `tierway keys list` shows the ID beside the key's first and last characters")
	case args[0] == "" || strings.ContainsAny(args[0], "/?#% ") || plain(args[0]) != args[0]:
		return fmt.Errorf("%q is not a key ID; `tierway keys list` shows them", args[0])
	}
	return nil
}

// confirm asks for confirmation of an irreversible change. Without a terminal, yes must be set.
func confirm(c *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	if !terminal(c.InOrStdin()) {
		return errors.New("standard input is not a terminal: confirm with --yes")
	}
	return ask(c.InOrStdin(), c.ErrOrStderr(), question)
}

// ask prints a question. Any answer except yes ends the command with status 1.
func ask(in io.Reader, out io.Writer, question string) error {
	fmt.Fprint(out, question+" [y/N] ")
	answer, _ := bufio.NewReader(io.LimitReader(in, 1<<10)).ReadString('\n') // no answer means no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	fmt.Fprintln(out, "tierway: nothing was changed")
	return exit(1)
}

// terminal reports whether a reader or writer is a character device other than the null device,
// such as a terminal.
func terminal(device any) bool {
	f, ok := device.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
