package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/server"
	"tierway/telemetry"
)

type serveFlags struct {
	config, listen, adminListen string
	policy                      string
	models, workerURLs, hosts   []string
}

func serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Example: "  tierway serve -c config.yaml\n" +
			"  tierway serve --model qwen2.5:7b --worker-urls http://127.0.0.1:11434,http://127.0.0.1:11435\n" +
			"  tierway serve --model qwen2.5:7b=small --model qwen2.5:72b=large --worker-urls http://127.0.0.1:11434",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			// A SIGHUP before the listeners are open is kept and does not end the process.
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			file, err := f.load(c)
			if err != nil {
				return err
			}
			return f.serve(c, file, hup)
		},
	}
	c.Flags().StringVarP(&f.config, "config", "c", "", "configuration file (default config.yaml unless --model is given)")
	c.Flags().StringVar(&f.listen, "listen", "", "address of the data plane; overrides listen")
	c.Flags().StringVar(&f.adminListen, "admin-listen", "", "address of the admin plane; overrides admin.listen")
	c.Flags().StringVar(&f.policy, "policy", "",
		"routing policy that replaces those of the file, of every tier and pool and of all policy_rules; overrides "+
			config.PolicyVariable)
	c.Flags().StringArrayVar(&f.models, "model", nil,
		"without a configuration file: model that the workers serve; several as MODEL=TIER, least capable first")
	c.Flags().StringSliceVar(&f.workerURLs, "worker-urls", nil,
		"without a configuration file: URLs of the workers, comma-separated")
	c.Flags().StringSliceVar(&f.hosts, "hosts", nil,
		"without a configuration file: host names of the gateway besides localhost, comma-separated")
	c.MarkFlagsMutuallyExclusive("config", "model")
	c.MarkFlagsMutuallyExclusive("config", "hosts")
	c.MarkFlagsRequiredTogether("model", "worker-urls")
	return c
}

func (f serveFlags) load(c *cobra.Command) (*config.File, error) {
	if len(f.models) > 0 {
		file, err := config.FromFlags(f.models, f.workerURLs, f.hosts, f.listen, f.adminListen)
		if err != nil {
			return nil, showFlagProblems(c, err)
		}
		name, _ := f.lookup(config.PolicyVariable)
		return file.WithPolicy(name)
	}
	file, err := loadConfigWith(c, f.path(), f.lookup)
	if err != nil {
		return nil, err
	}
	return override(c, file, f.listen, f.adminListen)
}

// lookup returns an environment variable. The flag --policy replaces the variable of the policy.
func (f serveFlags) lookup(name string) (string, bool) {
	if name == config.PolicyVariable && f.policy != "" {
		return f.policy, true
	}
	return os.LookupEnv(name)
}

// showFlagProblems prints the problems of flag values and returns exit status 1. It returns
// other errors unchanged.
func showFlagProblems(c *cobra.Command, err error) error {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return err
	}
	fmt.Fprintln(c.ErrOrStderr(), problems.Error())
	return exit(1)
}

// path returns the configuration file; empty if only flags are used.
func (f serveFlags) path() string {
	switch {
	case len(f.models) > 0:
		return ""
	case f.config == "":
		return "config.yaml"
	}
	return f.config
}

// reloadConfig loads the configuration for a reload.
func (f serveFlags) reloadConfig() (*config.File, error) {
	file, err := config.Load(f.path(), f.lookup)
	if err != nil || f.listen == "" && f.adminListen == "" {
		return file, err
	}
	return file.WithListen(f.listen, f.adminListen)
}

// override replaces the addresses of a configuration and checks that they are not more open
// than it allows.
func override(c *cobra.Command, file *config.File, listen, adminListen string) (*config.File, error) {
	if listen == "" && adminListen == "" {
		return file, nil
	}
	file, err := file.WithListen(listen, adminListen)
	if err != nil {
		return nil, showFlagProblems(c, err)
	}
	for _, w := range file.Warnings() {
		if w.Line == 0 { // warnings of the file were printed before
			fmt.Fprintln(c.ErrOrStderr(), w.String())
		}
	}
	return file, nil
}

// serve runs a checked configuration until a signal. hup receives SIGHUP.
func (f serveFlags) serve(c *cobra.Command, file *config.File, hup <-chan os.Signal) error {
	tuneCollector()
	limitMemory()
	logs := openLogs(c.ErrOrStderr(), c.OutOrStdout(), file.Log.Level)
	defer logs.close()
	log := logs.log
	o := options(file, log, logs.access)
	telemetry.Observe(o.Metrics, logs.dropped)
	announced := announcer{out: c.ErrOrStderr(), log: log}
	defer announced.clear()
	end := &shutdown{log: log, clear: announced.clear, flush: logs.close}
	ctx, stop := end.signals(c.Context())
	defer stop()
	o.OfferBootstrap = true
	var source *configSource
	if f.path() != "" {
		source = newConfigSource(f.reloadConfig)
		o.Source, o.Path = source.load, f.path()
	}
	s, err := server.New(o)
	if err != nil {
		return err
	}
	end.gateway.Store(s)
	if err := s.Listen(); err != nil {
		return err
	}
	log.Info("serving", "version", version, "data", s.Addr("data"), "admin", s.Addr("admin"),
		"tiers", len(file.Tiers), "pools", len(file.Pools), "workers", len(file.Specs()))
	announced.address = adminAddress(file, s.Addr("admin"))
	err = follower{reloadable: s, log: log, hup: hup, source: source, path: f.path(), loaded: file.Hash(),
		announcer: &announced}.run(ctx)
	return end.status(err)
}

// adminAddress returns the URL of the admin plane for programs on this machine. addr is the plane's open address, or
// "" before Listen.
func adminAddress(file *config.File, addr string) string {
	listen, files := file.Admin.Listen, file.Admin.TLS
	if file.SharedPlanes() {
		files = file.TLS
	}
	if addr != "" {
		listen = addr
	}
	return reachable(listen, files)
}

// options returns the options of a server; access receives its access log.
func options(file *config.File, log *slog.Logger, access io.Writer) server.Options {
	o := server.Options{Config: file, Log: log, Metrics: telemetry.New(version), Rand: rand.Uint64, Version: version}
	if file.Log.Access {
		o.Access = access
	}
	return o
}
