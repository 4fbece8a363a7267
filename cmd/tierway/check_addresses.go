package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
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

// workersText returns the names of workers as the end of a phrase.
func workersText(names []string) string {
	if len(names) == 1 {
		return "worker " + names[0]
	}
	return "workers " + strings.Join(names, ", ")
}
