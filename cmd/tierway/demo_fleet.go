package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tierway/engines"
)

// demoSeed makes the responses of all demos equal, and the requests of their background loads.
const demoSeed = 7

type demoTier struct {
	Name, Model string
	Handover    string // empty: one worker serves a whole request
	Workers     []demoWorker
}

type demoWorker struct{ Name, URL, Role string }

func startFleet(ctx context.Context, fleet []engines.Config) (tiers []demoTier, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, end := range slices.Backward(stops) {
			end()
		}
	}
	for _, c := range fleet {
		e := engines.New(c)
		stops = append(stops, e.Close)
		err := e.PublishEvents(ctx, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("publishing the KV events of the simulated engine %s: %w", c.Name, err)
		}
		s, err := engines.Start(e, "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("starting the simulated engine %s: %w", c.Name, err)
		}
		stops = append(stops, s.Kill)
		if n := len(tiers); n == 0 || tiers[n-1].Model != c.Model {
			name, _, _ := strings.Cut(c.Name, "-")
			tiers = append(tiers, demoTier{Name: name, Model: c.Model, Handover: c.Handover})
		}
		last := &tiers[len(tiers)-1]
		last.Workers = append(last.Workers, demoWorker{Name: c.Name, URL: s.URL, Role: c.Role})
	}
	return tiers, stop, nil
}
