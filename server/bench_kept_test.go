//go:build unix

package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// BenchmarkChatKept sends a chat of 1 KB that the response cache answers, beside one with an unknown model, which gets
// 404, in turns. C8: the kept answer costs at most 1.2 times as much CPU time. It fails if the median of the rounds is
// higher; the CPU time includes that of the client.
func BenchmarkChatKept(b *testing.B) {
	text := strings.Replace(plain, "    workers:",
		"    response_cache: { exact: { any_temperature: true } }\n    workers:", 1)
	front := benchFront(b, fmt.Sprintf(text, benchWorker(b, "w0", benchAnswer, "")))
	var ratios []float64
	for range 5 {
		refused, _ := benchCost(b, "404", func(b *testing.B) func() {
			return func() { benchStatus(b, benchBody("unknown", 1000), front, "HTTP/1.1 404") }
		})
		hit, _ := benchCost(b, "hit", func(b *testing.B) func() {
			return func() { benchRequests(b, 1000, front) }
		})
		ratios = append(ratios, float64(hit)/float64(refused))
	}
	slices.Sort(ratios)
	if median := ratios[len(ratios)/2]; median > 1.2 {
		b.Errorf("C8: a kept answer costs %.2f times the CPU time of a 404", median)
	}
}
