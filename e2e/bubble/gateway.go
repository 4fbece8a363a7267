package bubble

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"tierway/config"
	"tierway/e2e/gateway"
	"tierway/memnet"
	"tierway/server"
	"tierway/server/control"
	"tierway/store"
	"tierway/telemetry"
)

// cutStatus is the exit status after a second signal.
const cutStatus = 130

// inProcessGateway is a gateway in the test's process. It does what `tierway serve` does, without the announcement of
// the first admin's secret and without `watch`.
type inProcessGateway struct {
	server *server.Server
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // ends at the first signal, as in the binary
	stop   context.CancelFunc
	hup    chan struct{}
	cut    atomic.Bool
	ended  chan struct{}
	status int // once ended is closed
}

// arguments are the arguments of `tierway serve`.
type arguments struct {
	file, data, admin   string
	models, urls, hosts []string
}

func parseArguments(args []string) (a arguments, err error) {
	if len(args) == 0 || args[0] != "serve" {
		return a, fmt.Errorf("arguments %q: in a bubble only `serve` runs; call rig.RequireBinary outside of a bubble", args)
	}
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.StringVar(&a.file, "c", "", "")
	f.StringVar(&a.data, "listen", "", "")
	f.StringVar(&a.admin, "admin-listen", "", "")
	list := func(to *[]string) func(string) error {
		return func(v string) error { *to = append(*to, strings.Split(v, ",")...); return nil }
	}
	f.Func("model", "", list(&a.models))
	f.Func("worker-urls", "", list(&a.urls))
	f.Func("hosts", "", list(&a.hosts))
	return a, f.Parse(args[1:])
}

// load reads the configuration. env has NAME=value pairs.
func (a arguments) load(env []string) (*config.File, error) {
	if len(a.models) > 0 {
		return config.FromFlags(a.models, a.urls, a.hosts, a.data, a.admin)
	}
	file, err := config.Load(a.file, func(name string) (string, bool) {
		for _, pair := range env {
			if key, value, _ := strings.Cut(pair, "="); key == name {
				return value, true
			}
		}
		return "", false
	})
	if err != nil {
		return nil, err
	}
	return file.WithListen(a.data, a.admin)
}

// launcher returns the Launch of a [gateway.Launcher] for gateways on a network. Their environment has only env.
func launcher(n *memnet.Network) func(dir string, args, env []string, out, err io.Writer) (gateway.Program, error) {
	return func(_ string, args, env []string, out, errors io.Writer) (gateway.Program, error) {
		a, err := parseArguments(args)
		if err != nil {
			return nil, err
		}
		p := &inProcessGateway{log: slog.New(slog.NewJSONHandler(errors, nil)), hup: make(chan struct{}, 1),
			ended: make(chan struct{})}
		p.ctx, p.stop = context.WithCancel(context.Background())
		file, err := a.load(env)
		if err != nil {
			return nil, err
		}
		o := server.Options{Config: file, Path: a.file, Log: p.log, Metrics: telemetry.New("test"), Version: "test",
			Rand: seeded(rand.NewPCG(1, 2)), Listen: n.Listen, Dial: n.Dial}
		if file.Log.Access {
			o.Access = out
		}
		if a.file != "" {
			o.Source = func() (*config.File, error) { return a.load(env) }
		}
		if p.server, err = server.New(o); err != nil {
			return nil, err
		}
		if err := p.server.Listen(); err != nil {
			return nil, err
		}
		p.log.Info("serving", "data", p.server.Addr("data"), "admin", p.server.Addr("admin"))
		go p.run()
		return p, nil
	}
}

// seeded returns the random numbers of a gateway, which are the same in each run.
func seeded(from rand.Source) func() uint64 {
	var mu sync.Mutex
	random := rand.New(from)
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Uint64()
	}
}

// run serves until a signal.
func (p *inProcessGateway) run() {
	defer close(p.ended)
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for {
			select {
			case <-p.ctx.Done():
				return
			case <-p.hup:
				_, _ = p.server.Reload(p.ctx, // which logs the result
					control.ReloadRequest{Actor: store.Actor{Name: "tierway", Via: "signal"}})
			}
		}
	})
	err := p.server.Run(p.ctx)
	p.stop()
	reloads.Wait()
	switch {
	case err != nil:
		p.log.Error("the gateway has failed", "error", err.Error())
		p.status = 1
	case p.cut.Load():
		p.status = cutStatus
	}
}

// Signal is part of [gateway.Program].
func (p *inProcessGateway) Signal(s os.Signal) error {
	switch s {
	case syscall.SIGHUP:
		select {
		case p.hup <- struct{}{}:
		default: // a reload is due
		}
	case syscall.SIGTERM, syscall.SIGINT:
		if p.ctx.Err() == nil {
			p.stop()
			return nil
		}
		p.cut.Store(true)
		p.server.Cut("a second signal")
	default:
		return fmt.Errorf("signal %v: not handled in a bubble; call rig.RequireBinary outside of a bubble", s)
	}
	return nil
}

// Kill is part of [gateway.Program]. A gateway in the test's process cannot end at once: its drain is cut.
func (p *inProcessGateway) Kill() {
	p.stop()
	p.server.Cut("the end of the test")
	<-p.ended
}

// Wait is part of [gateway.Program].
func (p *inProcessGateway) Wait() int {
	<-p.ended
	return p.status
}
