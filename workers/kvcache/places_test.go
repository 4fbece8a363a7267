package kvcache

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// announced are the sources of an engine with that many ranks, which nothing serves.
func announced(ranks int) (all []Announced) {
	for r := range ranks {
		all = append(all, Announced{Rank: r, Endpoint: fmt.Sprintf("tcp://*:%d", 1+r)})
	}
	return all
}

// TestPlacesOfAPoolGoToSmallWorkersFirst: an engine that announces many sources takes no place that another
// worker needs, whichever comes first. A configured source comes before all announced ones.
func TestPlacesOfAPoolGoToSmallWorkersFirst(t *testing.T) {
	for name, c := range map[string]struct{ sources, want []int }{
		"all fit":                     {[]int{32, 16, 8, 8}, []int{32, 16, 8, 8}},
		"one of many sources, first":  {[]int{60, 1, 1, 1, 1, 1}, []int{0, 1, 1, 1, 1, 1}},
		"one of many sources, last":   {[]int{8, 8, 8, 8, 60}, []int{8, 8, 8, 8, 0}},
		"two of many sources":         {[]int{60, 60, 4}, []int{60, 0, 4}},
		"more than a pool has":        {[]int{2, 65, 2}, []int{2, 0, 2}},
		"configured ones come before": {[]int{40, -40, 4}, []int{0, 40, 4}},
	} {
		pool := New(Options{}).NewPool()
		var workers []*Worker
		for i, n := range c.sources {
			w := pool.Add(fmt.Sprint("w", i), i)
			workers = append(workers, w)
			if n < 0 {
				w.Configure(Config{Port: 1, Ranks: -n}, "127.0.0.1", nil)
			} else {
				w.Configure(Config{}, "127.0.0.1", announced(n))
			}
		}
		for i, w := range workers {
			if got := w.View().Streams; got != c.want[i] {
				t.Errorf("%s: w%d has %d streams, want %d", name, i, got, c.want[i])
			}
		}
		for i, w := range workers { // of those that stay, each gets the places that others leave
			if c.want[i] > 0 {
				w.Remove()
			}
		}
		for i, w := range workers {
			left := c.sources[i]
			if c.want[i] > 0 || left > 64 {
				left = 0
			}
			if got := w.View().Streams; got != left {
				t.Errorf("%s: w%d has %d streams after the others have left, want %d", name, i, got, left)
			}
		}
	}
}

// TestRanksThatAreNotWorkersAreLogged once, and not for a worker that is a rank.
func TestRanksThatAreNotWorkersAreLogged(t *testing.T) {
	var log bytes.Buffer
	pool := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))}).NewPool()
	w, rank := pool.Add("w0", 0), pool.Add("w1", 1)
	for range 2 {
		w.Configure(Config{}, "127.0.0.1", announced(2))
		rank.Configure(Config{Rank: new(1)}, "127.0.0.1", announced(2))
	}
	text := log.String()
	if n := strings.Count(text, "'ranks' of the worker"); n != 1 || !strings.Contains(text, "worker=w0 ranks=2") {
		t.Errorf("%d lines: %s", n, text)
	}
}
