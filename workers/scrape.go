package workers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	pathMetrics = "/metrics"
	// maxMetrics limits one answer in bytes. vLLM with many LoRA adapters stays under 1 MiB.
	maxMetrics = 4 << 20
	// noMetricsFor is the time after which /metrics of an engine without metrics is tried again.
	noMetricsFor = time.Minute
	// maxMetricsLine limits a line in bytes; longer lines are skipped. Engines write shorter ones with
	// all labels.
	maxMetricsLine = 16 << 10
)

// loads are the load of a server and those of its data-parallel ranks.
type loads struct {
	load                // of the server: counts are summed over all ranks, and usage is the maximum
	ranks map[int]*load // of the ranks that labels name; nil if there are none
}

// of returns the load of a rank: that of the server if rank is nil or if no label names the rank.
func (l *loads) of(rank *int) load {
	if rank == nil || l.ranks[*rank] == nil {
		return l.load
	}
	own := *l.ranks[*rank]
	own.cacheTokens = cmp.Or(own.cacheTokens, l.cacheTokens)
	return own
}

type load struct {
	engine           string // by the prefix of the names; empty: unknown
	waiting, running int
	kvUsage          float64
	cacheTokens      int64 // 0: not stated
	found            bool  // at least one of the three was present
	asleep           bool
	steps            stepCounters
}

// scrapeLoad reads the load of a healthy worker within timeout. If the worker does not report one, its
// last load stays, with its time. A worker that is a rank has the load of that rank, or that of the
// server if the engine does not tell its ranks apart.
func (c *checker) scrapeLoad(ctx context.Context, timeout time.Duration) {
	c.scraped = time.Now()
	for _, w := range c.all {
		w.sent.Store(false)
	}
	if !c.hasMetrics() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := c.sendGet(ctx, pathMetrics, false)
	if err != nil {
		return // the next health check reports the fault
	}
	defer answer.Body.Close()
	if answer.Status != http.StatusOK {
		if answer.Status < 500 || answer.Status == http.StatusNotImplemented {
			// llama.cpp without --metrics returns 501.
			c.noMetricsUntil = time.Now().Add(noMetricsFor)
		}
		return
	}
	measured, err := parseLoad(answer.Body)
	if err != nil {
		return
	}
	if measured.engine == "" {
		c.noMetricsUntil = time.Now().Add(noMetricsFor)
		return
	}
	now := time.Now()
	c.asleep = measured.asleep
	c.updateEach(func(i int, s *Status) {
		own := measured.of(c.all[i].rank)
		s.Engine = measured.engine
		if own.found {
			s.Waiting, s.Running, s.KVUsage, s.LoadAt = own.waiting, own.running, own.kvUsage, now
		}
		s.CacheTokens = own.cacheTokens
		s.StalledSince = c.progress[i].observe(own, now)
		s.SteppedAt = c.progress[i].steppedAt()
	})
}

// gauge is the value that a metric's samples contribute to.
type gauge uint8

const (
	gaugeWaiting gauge = iota + 1
	gaugeRunning
	gaugeUsage
	counterPrompt
	counterGenerated
	counterIterations
	gaugeSleep
	infoCache
)

// gauges are the engines' load metrics, including their old names, and vLLM's progress counters.
// Other engines update their counters when a request ends.
var gauges = map[string]gauge{
	"vllm:num_requests_waiting":         gaugeWaiting,
	"vllm:num_requests_running":         gaugeRunning,
	"vllm:kv_cache_usage_perc":          gaugeUsage,
	"vllm:gpu_cache_usage_perc":         gaugeUsage,
	"vllm:prompt_tokens_total":          counterPrompt,
	"vllm:generation_tokens_total":      counterGenerated,
	"vllm:iteration_tokens_total_count": counterIterations,
	"vllm:engine_sleep_state":           gaugeSleep,
	"vllm:cache_config_info":            infoCache,
	"sglang:cache_config_info":          infoCache,
	"sglang:num_queue_reqs":             gaugeWaiting,
	"sglang:num_running_reqs":           gaugeRunning,
	"sglang:token_usage":                gaugeUsage,
	"llamacpp:requests_deferred":        gaugeWaiting,
	"llamacpp:requests_processing":      gaugeRunning,
	"llamacpp:kv_cache_usage_ratio":     gaugeUsage,
}

// knownEngines are the engines that the prefix of a metric's name identifies.
var knownEngines = []string{"vllm", "sglang", "llamacpp"}

// parseLoad reads the metrics in gauges from the Prometheus text format. Counts are summed over
// label sets, because a data-parallel engine writes one per rank; usage is the maximum. Invalid
// lines are skipped. An error comes from the reader, or means that there is more than maxMetrics.
func parseLoad(r io.Reader) (loads, error) {
	bounded := &io.LimitedReader{R: r, N: maxMetrics + 1}
	lines := bufio.NewReaderSize(bounded, maxMetricsLine)
	var l loads
	for skipping := false; ; {
		line, err := lines.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		if !skipping && !tooLong && (err == nil || errors.Is(err, io.EOF)) {
			l.addSample(line)
		}
		skipping = tooLong
		switch {
		case err == nil || tooLong:
		case !errors.Is(err, io.EOF):
			return loads{}, fmt.Errorf("reading metrics: %w", err)
		case bounded.N <= 0:
			return loads{}, fmt.Errorf("reading metrics: more than %d bytes", maxMetrics)
		default:
			return l, nil
		}
	}
}

// addSample adds a line to the load of the server and to that of the rank in its labels.
func (l *loads) addSample(line []byte) {
	name, value, ok := splitSample(line)
	if !ok {
		return
	}
	prefix, _, colon := bytes.Cut(name, []byte{':'})
	if l.engine == "" && colon && slices.Contains(knownEngines, string(prefix)) {
		l.engine = string(prefix)
	}
	kind := gauges[string(name)]
	if kind == 0 {
		return
	}
	number, err := strconv.ParseFloat(string(value), 64)
	if err != nil || math.IsNaN(number) || math.IsInf(number, 0) || number < 0 {
		return
	}
	l.add(kind, number, line)
	rank, named := rankLabel(line)
	if !named {
		return
	}
	if l.ranks[rank] == nil {
		if l.ranks == nil {
			l.ranks = map[int]*load{}
		}
		l.ranks[rank] = new(load)
	}
	l.ranks[rank].add(kind, number, line)
}

// add adds a sample of a kind to the load.
func (l *load) add(kind gauge, number float64, line []byte) {
	l.found = l.found || kind <= gaugeUsage
	l.steps.found = l.steps.found || kind == counterGenerated
	switch kind {
	case counterPrompt:
		l.steps.prompt += number
	case counterGenerated:
		l.steps.generated += number
	case counterIterations:
		l.steps.iterations += number
	case gaugeSleep:
		// vLLM writes one sample per state; awake is 0 while it sleeps.
		l.asleep = l.asleep || number == 0 && bytes.Contains(line, []byte(`sleep_state="awake"`))
	case infoCache:
		l.cacheTokens = min(l.cacheTokens+cacheTokens(line), maxCacheTokens)
	case gaugeWaiting:
		l.waiting = wholeCount(float64(l.waiting) + number)
	case gaugeRunning:
		l.running = wholeCount(float64(l.running) + number)
	case gaugeUsage:
		l.kvUsage = min(max(l.kvUsage, number), 1)
	}
}

// cacheTokens returns the size of a cache from the labels of an info metric; 0 if they do not state
// it. vLLM 0.32 writes kv_cache_size_tokens, and all versions write blocks; SGLang writes pages.
func cacheTokens(line []byte) int64 {
	if n := numberLabel(line, "kv_cache_size_tokens"); n > 0 {
		return n
	}
	if n := numberLabel(line, "block_size") * numberLabel(line, "num_gpu_blocks"); n > 0 {
		return n
	}
	return numberLabel(line, "page_size") * numberLabel(line, "num_pages")
}

// rankLabel returns the data-parallel rank in the labels of a sample: engine of vLLM or dp_rank of
// SGLang.
func rankLabel(line []byte) (rank int, ok bool) {
	for _, name := range [...]string{"engine", "dp_rank"} {
		if number, err := strconv.ParseUint(string(label(line, name)), 10, 32); err == nil && number < MaxRanks {
			return int(number), true
		}
	}
	return 0, false
}

// numberLabel returns the whole number in a label of a sample; 0 if there is none.
func numberLabel(line []byte, name string) int64 {
	number, err := strconv.ParseInt(string(label(line, name)), 10, 32)
	if err != nil || number < 0 {
		return 0
	}
	return number
}

// label returns the value of a label of a sample; nil if the sample does not have it.
func label(line []byte, name string) []byte {
	for rest := line; ; {
		before, after, found := bytes.Cut(rest, []byte(name+`="`))
		if !found {
			return nil
		}
		if n := len(before); n > 0 && (before[n-1] == '{' || before[n-1] == ',' || before[n-1] == ' ') {
			value, _, _ := bytes.Cut(after, []byte{'"'})
			return value
		}
		rest = after
	}
}

// maxCacheTokens is a bound on the size of a cache, far above that of any engine.
const maxCacheTokens = 1 << 40

// wholeCount limits a metric to the range of a 32-bit int.
func wholeCount(f float64) int { return int(min(math.Round(f), math.MaxInt32)) }

// splitSample splits a line "name{labels} value timestamp". The results are slices of line.
func splitSample(line []byte) (name, value []byte, ok bool) {
	line = bytes.TrimLeft(line, " \t")
	end := bytes.IndexAny(line, "{ \t\r\n")
	if end <= 0 || line[0] == '#' {
		return nil, nil, false
	}
	name, rest := line[:end], bytes.TrimLeft(line[end:], " \t")
	if len(rest) > 0 && rest[0] == '{' {
		length := labelsLength(rest)
		if length < 0 {
			return nil, nil, false
		}
		rest = rest[length:]
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return nil, nil, false
	}
	return name, fields[0], true
}

// labelsLength returns the length of the labels at the start of b, or -1 if they are not closed. A
// brace within quotes is part of a value.
func labelsLength(b []byte) int {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case b[i] == '}' && !quoted:
			return i + 1
		}
	}
	return -1
}
