package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
)

// hookKinds are the types of hooks that -hooks measures.
var hookKinds = []string{"http", "ext_proc"}

// hooksReport is what -hooks prints.
type hooksReport struct {
	setup
	Loads []hooksLoad `json:"loads"`
}

// hooksLoad compares gateways with one hook that allows every request with one without hooks.
type hooksLoad struct {
	Shape string            `json:"shape"`
	None  spread            `json:"cpu_us_per_request_without_hooks"`
	Ratio map[string]spread `json:"with_over_without"`     // by the type of the hook
	P99   map[string]spread `json:"p99_with_over_without"` // the same of the latency
}

// measureHooks measures what a hook costs: gateways without hooks and with one that allows every request, at -rate
// requests per second in turns.
func measureHooks(ctx context.Context, o options, out io.Writer) error {
	o.cpu = true
	return withWorker(ctx, o, func(ctx context.Context, c *children, b *bench, worker string) error {
		confs := map[string]string{"none": ""}
		names := append([]string{"none"}, hookKinds...)
		for _, kind := range hookKinds {
			addr, _, err := c.startListener(ctx, "hook-"+kind)
			if err != nil {
				return err
			}
			if kind == "http" {
				addr = "http://" + addr + "/"
			}
			confs[kind] = fmt.Sprintf("hooks: [ { name: allow, type: %s, url: %q, timeout: 1s } ]\n", kind, addr)
		}
		for _, name := range names {
			p, err := c.startTierway(ctx, name, o.bin, worker, b.key, silentConf()+confs[name])
			if err != nil {
				return err
			}
			b.setup.Tierway = p.version
			b.targets = append(b.targets, target{name: name, addr: p.addr, pid: p.pid})
		}
		rep := hooksReport{setup: b.setup}
		for _, s := range shapes()[:2] {
			measured, err := b.rounds(ctx, o, job{Key: b.key, Shape: s.name, Connections: o.connections, Seconds: o.seconds,
				Rate: o.rate})
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			rep.Loads = append(rep.Loads, hooksLoadOf(s.name, measured))
		}
		return printReport(out, o, rep)
	})
}

// hooksLoadOf compares the results of the gateways in the order of hookKinds with those of the first one.
func hooksLoadOf(shape string, rounds [][]result) hooksLoad {
	l := hooksLoad{Shape: shape, Ratio: map[string]spread{}, P99: map[string]spread{},
		None: spreadOf(rounds, func(r []result) float64 { return r[0].CPU })}
	for i, kind := range hookKinds {
		l.Ratio[kind] = spreadOf(rounds, func(r []result) float64 { return r[i+1].CPU / r[0].CPU })
		l.P99[kind] = spreadOf(rounds, func(r []result) float64 { return r[i+1].P99 / r[0].P99 })
	}
	return l
}

// String returns the report as a table.
func (r hooksReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: one hook that allows, %d cores, %g requests/s, median of %d rounds of %g s\n",
		r.Tierway, r.Cores, r.Rate, r.Rounds, r.Seconds)
	for _, l := range r.Loads {
		fmt.Fprintf(&b, "\n%s: %.0f (%.0f–%.0f) µs of CPU without hooks\n", l.Shape, l.None.Median, l.None.Min, l.None.Max)
		for _, kind := range hookKinds {
			fmt.Fprintf(&b, "%-10s CPU × %-20s p99 × %s\n", kind, ratio(l.Ratio[kind]), ratio(l.P99[kind]))
		}
	}
	return b.String()
}

// serveHook runs the service of a hook that allows every request, until in ends.
func serveHook(kind string, in io.Reader, out io.Writer) error {
	l, err := listenUntil("127.0.0.1:0", in, out)
	if err != nil {
		return err
	}
	if kind == "ext_proc" {
		s := grpc.NewServer()
		extproc.RegisterExternalProcessorServer(s, allowingProcessor{})
		return s.Serve(l)
	}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the load process checks the answers
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"action":"allow"}`)
	}))
}

// allowingProcessor is an ext_proc service that continues with every request.
type allowingProcessor struct {
	extproc.UnimplementedExternalProcessorServer
}

// Process implements extproc.ExternalProcessorServer.
func (allowingProcessor) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the request has ended
		}
		answer := &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{}}
		if r.GetRequestBody() != nil {
			answer = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{}}
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}
