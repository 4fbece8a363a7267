package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/engines"
	"tierway/server"
	"tierway/telemetry"
	"tierway/tenants"
)

type demoFlags struct {
	listen, adminListen, config string
	load                        float64
	json, disaggregated         bool
}

func demoCommand() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:     "demo",
		Short:   "Serve three tiers of simulated engines, with keys created for this run",
		Example: "  tierway demo\n  tierway demo --json --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0",
		Long: "The demo needs no configuration. It writes its own to a file, which can be edited and reloaded, and\n" +
			"removes the file when it stops. It stores nothing else on disk. To serve real engines without a file, run\n" +
			"`tierway serve --model NAME --worker-urls URL`.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.json && !c.Flags().Changed("load") {
				f.load = 0
			}
			return f.run(c)
		},
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the data plane, loopback only")
	c.Flags().StringVar(&f.adminListen, "admin-listen", "127.0.0.1:8081", "address of the admin plane, loopback only")
	c.Flags().StringVar(&f.config, "config", "",
		"new file for the demo's configuration, which is removed at the stop (default a temporary file)")
	c.Flags().Float64Var(&f.load, "load", 2, fmt.Sprintf(
		"requests per second of a background load, 0 to %d; 0: none, which is the default with --json", maxDemoLoad))
	c.Flags().BoolVar(&f.disaggregated, "disaggregated", false,
		"two stages in the medium tier: two engines compute prompts, two others generate the answers")
	c.Flags().BoolVar(&f.json, "json", false, "print one line of JSON instead of the greeting when ready")
	return c
}

// run starts the engines and the gateway and serves until a signal.
func (f demoFlags) run(c *cobra.Command) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	keys, err := newDemoKeys()
	if err != nil {
		return err
	}
	file := &demoFile{}
	defer func() { err = errors.Join(err, file.remove()) }()
	end := &shutdown{clear: func() { _ = file.remove() }} // the process exits and cannot report an error
	ctx, stop := end.demoSignals(c.Context())
	defer stop()
	// The engines outlive the signal: their streams must not end before the gateway that reads them.
	simulated := engines.Demo
	if f.disaggregated {
		simulated = engines.DisaggregatedDemo
	}
	fleet, closeFleet, err := startFleet(context.WithoutCancel(ctx), simulated(demoSeed))
	if err != nil {
		return err
	}
	defer closeFleet()
	path, err := file.create(f.config, keys.settings(f.load, fleet))
	if err != nil {
		return err
	}
	return f.serve(ctx, c, path, keys, end)
}

// serve runs the gateway with the configuration at path, and the background load, until ctx ends.
func (f demoFlags) serve(ctx context.Context, c *cobra.Command, path string, keys demoKeys, end *shutdown) error {
	from := serveFlags{config: path, listen: f.listen, adminListen: f.adminListen}
	file, err := from.load(c)
	if err != nil {
		return err
	}
	logs := openLogs(c.ErrOrStderr(), nil, "warn")
	defer logs.close()
	o := options(file, logs.log, demoLogFilter{logs.program})
	telemetry.Observe(o.Metrics, logs.dropped)
	source := newConfigSource(from.reloadConfig)
	o.Source, o.Path = source.load, path
	s, err := server.New(o)
	if err != nil {
		return err
	}
	end.log, end.flush = logs.log, logs.close
	end.gateway.Store(s)
	if err := s.Listen(); err != nil {
		return err
	}
	greeting, err := newDemoGreeting(s, path, keys, f.load)
	if err != nil {
		return err
	}
	greeting.Disaggregated = f.disaggregated
	if err := greeting.print(c.OutOrStdout(), f.json); err != nil {
		return err
	}
	stopLoad := startDemoLoad(ctx, demoLoad{url: greeting.BaseURL, rate: f.load, keys: keys.load})
	defer stopLoad()
	return end.status(follower{reloadable: s, log: logs.log, source: source, path: path, loaded: file.Hash()}.run(ctx))
}

// check rejects values that the demo cannot use. The addresses must be ones that other machines cannot
// reach: the demo has no TLS, and its configuration does not permit plain text.
func (f demoFlags) check() error {
	for _, flag := range [...]struct{ name, address string }{{"listen", f.listen}, {"admin-listen", f.adminListen}} {
		if !config.Loopback(flag.address) {
			return fmt.Errorf("--%s %q: the demo listens only on loopback: write an address such as 127.0.0.1:9000; "+
				"for other addresses, run `tierway serve` with a configuration file", flag.name, plain(flag.address))
		}
	}
	if !(f.load >= 0 && f.load <= maxDemoLoad) { // also false for NaN
		return fmt.Errorf("--load %v: write a number of requests per second from 0 to %d, such as 2; 0 turns the "+
			"background load off", f.load, maxDemoLoad)
	}
	return nil
}

// demoSignals is signals for a demo, which ends also when its terminal closes: it must leave no file
// behind.
func (e *shutdown) demoSignals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, stopSignals := e.signals(parent)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, stopSignals // under nohup, the demo outlives its terminal
	}
	ctx, stopHangup := signal.NotifyContext(ctx, syscall.SIGHUP)
	return ctx, func() {
		stopHangup()
		stopSignals()
	}
}

type demoKeys struct {
	tenant, admin string
	load          map[string]string // of the background load, by tenant
}

func newDemoKeys() (keys demoKeys, err error) {
	newKey := func(prefix string) string {
		key, failed := tenants.NewKey(rand.Reader, prefix)
		err = errors.Join(err, failed)
		return key
	}
	keys.tenant, keys.admin = newKey(tenants.TenantPrefix), newKey(tenants.AdminPrefix)
	keys.load = map[string]string{chatApp: newKey(tenants.TenantPrefix), nightlyBatch: newKey(tenants.TenantPrefix)}
	return keys, err
}
