package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"tierway/config"
	"tierway/workers"
)

const (
	// lookUpsTime is the longest time that check waits for all names: a name server answers in milliseconds.
	lookUpsTime = 2 * time.Second
	// lookUpsAtOnce bounds the look-ups in progress to a number that a stub resolver can serve.
	lookUpsAtOnce = 16
)

// warnOfAddresses writes a warning for each worker whose host has the addresses of several servers.
func warnOfAddresses(ctx context.Context, out io.Writer, f *config.File,
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)) {
	ctx, cancel := context.WithTimeout(ctx, lookUpsTime)
	defer cancel()
	warnings, places := [][]string{}, make(chan struct{}, lookUpsAtOnce)
	var running sync.WaitGroup
	for _, p := range f.ResolvedPools() {
		of := make([]string, len(p.Workers))
		warnings = append(warnings, of)
		for i, w := range p.Workers {
			running.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				if host, all := workers.SeveralAddresses(ctx, w.URL, lookUp); host != "" {
					of[i] = fmt.Sprintf("tierway: warning: host %s of worker %s has %d addresses, but counts as one "+
						"server: list each server as a worker of its own\n", host, w.Name, len(all))
				}
			})
		}
	}
	running.Wait()
	for _, of := range warnings {
		for _, warning := range of {
			fmt.Fprint(out, warning)
		}
	}
}
