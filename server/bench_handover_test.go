//go:build unix

package server

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkChatHandedOver sends a chat of 1 KB through the gateway whose prompt one worker computes for another one,
// beside one that a single worker serves. PD12: the two stages cost at most 1.8 times as much CPU time, and take at
// most 1 ms longer. It fails otherwise; the CPU time includes that of client and workers.
func BenchmarkChatHandedOver(b *testing.B) {
	const object = `"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[17,18]],` +
		`"remote_engine_id":"e","remote_request_id":"r","remote_host":"10.0.0.1","remote_port":5600,"tp_size":1}`
	plainCPU, plainTime := benchCost(b, "plain", func(b *testing.B) func() {
		front := benchFront(b, fmt.Sprintf(plain, benchWorker(b, "w0", benchAnswer, "")))
		return func() { benchRequests(b, 1000, front) }
	})
	cpu, took := benchCost(b, "nixl", func(b *testing.B) func() {
		prefill := benchWorker(b, "p0", strings.TrimSuffix(benchAnswer, "}")+","+object+"}", "role: prefill")
		decode := benchWorker(b, "d0", benchAnswer, "role: decode")
		text := strings.Replace(plain, "    workers:", "    handover: nixl\n    uncached_threshold: 1\n    workers:", 1)
		front := benchFront(b, fmt.Sprintf(text, prefill+", "+decode))
		return func() { benchRequests(b, 1000, front) }
	})
	if cpu > plainCPU*18/10 || took > plainTime+time.Millisecond {
		b.Errorf("PD12: %v of CPU time and %v in two stages, %v and %v in one", cpu, took, plainCPU, plainTime)
	}
}

// benchCost runs the benchmark that prepare returns, and returns the process' CPU time and the time of one request.
func benchCost(b *testing.B, name string, prepare func(*testing.B) func()) (cpu, took time.Duration) {
	b.Run(name, func(b *testing.B) {
		send, before := prepare(b), processTime(b)
		send()
		cpu, took = (processTime(b)-before)/time.Duration(b.N), b.Elapsed()/time.Duration(b.N)
		b.ReportMetric(float64(cpu.Microseconds()), "cpu-µs/op")
	})
	return cpu, took
}

// processTime returns the CPU time of the process.
func processTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
