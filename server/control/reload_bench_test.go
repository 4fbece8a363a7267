//go:build unix

package control

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tierway/config"
)

// weighted is a configuration with n workers in pools of 500. The first worker has a weight, every pool a policy.
func weighted(n, weight int, policy string) string {
	var b strings.Builder
	b.WriteString("store: { sql: \"\" }\nauth: { required: false }\n")
	fmt.Fprintf(&b, "health: { path: \"off\" }\npolicy: { name: %s }\ntiers:\n", policy)
	for i := range n {
		if i%500 == 0 {
			fmt.Fprintf(&b, "  - name: tier%d\n    model: m%d\n    workers:\n", i/500, i/500)
		}
		fmt.Fprintf(&b, "      - { name: w%d, url: \"http://10.0.%d.%d:9\", weight: %d }\n", i, i/250, i%250+1, weight)
		weight = 1
	}
	return b.String()
}

// BenchmarkReload of one changed weight among 2,000 workers: the CPU time of reading the file and of the rest.
func BenchmarkReload(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the gateway with a heap of this size
	for _, policy := range []string{"least_load", "kv_aware", "chwbl"} {
		b.Run(policy, func(b *testing.B) {
			c, round := newTestControl(b, weighted(2000, 1, policy)), 0
			ctx, cancel := context.WithCancel(b.Context())
			var checks sync.WaitGroup
			defer checks.Wait()
			defer cancel()
			checks.Go(func() { c.Pools.fleet.Run(ctx) })
			var reading, all time.Duration
			c.source = func() (*config.File, error) {
				round++
				text := "classifier: { preset: none }\n" + weighted(2000, 1+round%2, policy)
				began := cpuTime(b)
				defer func() { reading += cpuTime(b) - began }()
				return config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
			}
			for b.Loop() {
				began := cpuTime(b)
				if result, err := c.Reload(b.Context(), ReloadRequest{}); err != nil || len(result.Changes) != 1 {
					b.Fatalf("%v, %+v", err, result)
				}
				all += cpuTime(b) - began
			}
			b.ReportMetric(float64(reading.Microseconds())/1000/float64(b.N), "read-ms/op")
			b.ReportMetric(float64((all-reading).Microseconds())/1000/float64(b.N), "rest-ms/op")
		})
	}
}

// cpuTime returns the CPU time of the process, garbage collection included.
func cpuTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
