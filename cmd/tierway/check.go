package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/workers"
)

func checkCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:     "check",
		Short:   "Check a configuration file and report all problems",
		Example: "  tierway check -c config.yaml",
		Long:    "Exit status: 0 valid (warnings are allowed), 1 invalid, 2 wrong usage.",
		Args:    noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			f, err := loadConfig(c, path)
			if err != nil {
				return err
			}
			warnOfAddresses(c.Context(), c.ErrOrStderr(), f, nil)
			fmt.Fprintf(c.OutOrStdout(), "%s: ok (%d tiers, %d pools, %d workers, %d keys)\n",
				path, len(f.Tiers), len(f.Pools), f.WorkerCount(), len(f.Auth.Keys))
			for _, p := range f.ResolvedPools() {
				if p.Handover != "" {
					fmt.Fprintf(c.OutOrStdout(), "%s: handover %s: %s\n", p.Name, p.Handover, rolesText(&p))
				}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&path, "config", "c", "config.yaml", "configuration file to check")
	return c
}

func rolesText(p *config.Pool) string {
	var all []string
	for _, role := range []string{workers.RolePrefill, workers.RoleDecode, workers.RoleBoth} {
		var names []string
		for i := range p.Workers {
			if p.Workers[i].Role == role {
				names = append(names, p.Workers[i].Name)
			}
		}
		if len(names) > 0 {
			all = append(all, role+" "+strings.Join(names, ", "))
		}
	}
	return strings.Join(all, "; ")
}

// loadConfig loads a configuration and prints its problems and warnings to the message output.
// If it is invalid, the error is an exit status of 1.
func loadConfig(c *cobra.Command, path string) (*config.File, error) {
	return loadConfigWith(c, path, os.LookupEnv)
}

// loadConfigWith is loadConfig with other environment variables.
func loadConfigWith(c *cobra.Command, path string, env func(string) (string, bool)) (*config.File, error) {
	f, err := config.Load(path, env)
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
	case err != nil:
		fmt.Fprintln(c.ErrOrStderr(), "tierway: "+err.Error())
		return nil, exit(1)
	default:
		problems = f.Warnings()
	}
	if len(problems) > 0 {
		src, readErr := readFile(c, path, maxConfig)
		if readErr != nil {
			src = nil // print the problems without source lines
		}
		if err := problems.Format(c.ErrOrStderr(), src); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, exit(1)
	}
	if name := f.ReplacedPolicy(); name != "" { // a forgotten variable would be hard to find
		fmt.Fprintf(c.ErrOrStderr(), "tierway: the policy %s, from --policy or %s, replaces all policies of %s\n", name,
			config.PolicyVariable, path)
	}
	return f, nil
}

const (
	// lookUpsTime is the longest time that check waits for all names: a name server answers in milliseconds.
	lookUpsTime = 2 * time.Second
	// lookUpsAtOnce bounds the look-ups in progress to a number that a stub resolver can serve.
	lookUpsAtOnce = 16
)

// warnOfAddresses writes a warning for each host of workers that has the addresses of several servers.
func warnOfAddresses(ctx context.Context, out io.Writer, f *config.File,
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)) {
	ctx, cancel := context.WithTimeout(ctx, lookUpsTime)
	defer cancel()
	type found struct {
		worker, host string
		addresses    int
	}
	var all []*found
	semaphore := make(chan struct{}, lookUpsAtOnce)
	var running sync.WaitGroup
	for _, p := range f.ResolvedPools() {
		for _, w := range p.Workers {
			of := &found{worker: w.Name}
			all = append(all, of)
			running.Go(func() {
				semaphore <- struct{}{}
				defer func() { <-semaphore }()
				host, addresses := workers.SeveralAddresses(ctx, w.URL, lookUp)
				of.host, of.addresses = host, len(addresses)
			})
		}
	}
	running.Wait()
	names := map[string][]string{} // workers by host
	for _, of := range all {
		names[of.host] = append(names[of.host], of.worker)
	}
	for _, of := range all {
		if of.host == "" || names[of.host] == nil {
			continue
		}
		fmt.Fprintf(out, "tierway: warning: host %s of %s has %d addresses, but counts as one server: list each server as "+
			"a worker of its own\n", of.host, workersText(names[of.host]), of.addresses)
		names[of.host] = nil
	}
}

func workersText(names []string) string {
	if len(names) == 1 {
		return "worker " + names[0]
	}
	return "workers " + strings.Join(names, ", ")
}
