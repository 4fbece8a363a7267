package workers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestMetricsOfEveryEngineAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want load
	}{
		"vLLM": {`# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 12.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="qwen"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.8125
vllm:prompt_tokens_total{engine="0",model_name="qwen"} 1.0e+06
vllm:generation_tokens_total{engine="0",model_name="qwen"} 5000.0
vllm:iteration_tokens_total_count{engine="0",model_name="qwen"} 70.0
vllm:engine_sleep_state{engine="0",model_name="qwen",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="qwen",sleep_state="weights_offloaded"} 0.0
`, load{engine: "vllm", found: true, waiting: 3, running: 12, kvUsage: 0.8125,
			steps: stepCounters{prompt: 1e6, generated: 5000, iterations: 70, found: true}}},
		"vLLM asleep": {`vllm:num_requests_running 0
vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0
vllm:engine_sleep_state{engine="0",sleep_state="weights_offloaded"} 1.0
`, load{engine: "vllm", found: true, asleep: true}},
		"vLLM with two ranks": {`vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_running{engine="1"} 5.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:num_requests_waiting{engine="1"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.5
`, load{engine: "vllm", found: true, waiting: 4, running: 7, kvUsage: 0.5}},
		"old vLLM": {`vllm:gpu_cache_usage_perc{model_name="m"} 0.5`, load{engine: "vllm", found: true, kvUsage: 0.5}},
		"SGLang": {`sglang:num_running_reqs{model_name="m"} 7
sglang:token_usage{model_name="m"} 0.28
sglang:num_queue_reqs{model_name="m"} 2
`, load{engine: "sglang", found: true, waiting: 2, running: 7, kvUsage: 0.28}},
		"llama.cpp": {`llamacpp:requests_processing 1
llamacpp:requests_deferred 6
llamacpp:kv_cache_usage_ratio 0.125
`, load{engine: "llamacpp", found: true, waiting: 6, running: 1, kvUsage: 0.125}},
		"vLLM's cache": {`vllm:cache_config_info{_block_size_resolved="True",block_size="32",cache_dtype="auto",` +
			`effective_attention_block_size="16",engine="0",kv_cache_size_tokens="5120",mamba_block_size="None",` +
			`num_cpu_blocks="None",num_gpu_blocks="170",num_gpu_blocks_override="999"} 1.0`,
			load{engine: "vllm", cacheTokens: 5120}},
		"older vLLM's caches": {`vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{hash_block_size="64",engine="1", block_size="16",num_gpu_blocks="50"} 1.0
`, load{engine: "vllm", cacheTokens: 2400}},
		"SGLang's cache": {`sglang:cache_config_info{page_size="64",num_pages="1000"} 1`,
			load{engine: "sglang", cacheTokens: 64000}},
		"caches without a size": {`vllm:cache_config_info{block_size="None",num_gpu_blocks="None"} 1.0
vllm:cache_config_info{hash_block_size="16",num_gpu_blocks="7"} 1.0
vllm:cache_config_info{block_size="-4",num_gpu_blocks="99999999999"} 1.0
vllm:cache_config_info{block_size="4
`, load{engine: "vllm"}},
		"engine without the gauges": {"vllm:other 1\n", load{engine: "vllm"}},
		"another program":           {"go_goroutines 7\nvllmish:num_requests_waiting 3\nnum_requests_waiting 3\n", load{}},
		"web page":                  {"<!DOCTYPE html>\n<html>{\n", load{}},
		"nothing":                   {"", load{}},
	} {
		got, err := parseLoad(strings.NewReader(c.text))
		if err != nil || got.load != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

func TestInvalidLinesAreSkipped(t *testing.T) {
	const good = "llamacpp:requests_deferred 5"
	for _, odd := range []string{
		"llamacpp:requests_deferred NaN", "llamacpp:requests_deferred +Inf", "llamacpp:requests_deferred -Inf",
		"llamacpp:requests_deferred -3",
		"llamacpp:requests_deferred", "llamacpp:requests_deferred ", "llamacpp:requests_deferred{",
		`llamacpp:requests_deferred{a="} 7`,
		`llamacpp:requests_deferred{a="\"} 7`, "llamacpp:requests_deferred seven", "# llamacpp:requests_deferred 9", "\x00",
		"{} 3", "}",
		"llamacpp:requests_deferred{a=\"" + strings.Repeat("x", maxMetricsLine) + "\"} 7",
		strings.Repeat("x", maxMetricsLine) + good,
		"llamacpp:other{a=\"" + strings.Repeat("llamacpp:requests_deferred 7 ", 2000) + "\"} 7",
	} {
		got, err := parseLoad(strings.NewReader(good + "\n" + odd + "\n" + "llamacpp:requests_processing 2\r\n"))
		if err != nil || got.waiting != 5 || got.running != 2 {
			t.Errorf("with %.60q: %+v, %v", odd, got, err)
		}
	}
}

func TestLabelsMayContainAnything(t *testing.T) {
	for _, line := range []string{
		`vllm:num_requests_waiting{a="}",b="\"}",c="\\"} 4`, `vllm:num_requests_waiting {a="x"} 4 1712345678901`,
		"  vllm:num_requests_waiting\t4\t17", `vllm:num_requests_waiting{} 4e0`, `vllm:num_requests_waiting{a="x",}4`,
	} {
		if got, err := parseLoad(strings.NewReader(line)); err != nil || got.waiting != 4 {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
}

func TestCountsAreSummedAndUsageIsTheMaximum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		waiting := rapid.SliceOfN(rapid.IntRange(0, 1000), 0, 8).Draw(t, "waiting")
		usage := rapid.SliceOfN(rapid.Float64Range(0, 1), 0, 8).Draw(t, "usage")
		label := rapid.StringMatching(`[^"\\\n]{0,20}`).Draw(t, "label")
		var text strings.Builder
		want := load{engine: "", found: len(waiting)+len(usage) > 0}
		if want.found {
			want.engine = "vllm"
		}
		for i, n := range waiting {
			fmt.Fprintf(&text, "vllm:num_requests_waiting{engine=\"%d\",m=%q} %d\n", i, label, n)
			want.waiting += n
		}
		for i, u := range usage {
			fmt.Fprintf(&text, "vllm:kv_cache_usage_perc{m=%q,engine=\"%d\"} %v\n", label, i, u)
			want.kvUsage = max(want.kvUsage, u)
		}
		got, err := parseLoad(iotest.OneByteReader(strings.NewReader(text.String())))
		if err != nil || got.load != want {
			t.Fatalf("%+v, %v; want %+v of\n%s", got, err, want, text.String())
		}
		sum := load{engine: want.engine}
		for _, rank := range got.ranks {
			sum.waiting, sum.running, sum.found = sum.waiting+rank.waiting, sum.running+rank.running, sum.found || rank.found
			sum.kvUsage = max(sum.kvUsage, rank.kvUsage)
		}
		if sum != want {
			t.Fatalf("the ranks have %+v together, want %+v of\n%s", sum, want, text.String())
		}
	})
}

func TestIncompleteMetricsAreNoLoad(t *testing.T) {
	broken := errors.New("cut")
	text := "vllm:num_requests_waiting 4\n"
	if _, err := parseLoad(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a broken answer: %v", err)
	}
	if _, err := parseLoad(io.MultiReader(strings.NewReader(text), bytes.NewReader(make([]byte, maxMetrics)))); err ==
		nil {
		t.Error("an endless answer is accepted")
	}
	if got, err := parseLoad(io.MultiReader(strings.NewReader(text),
		bytes.NewReader(make([]byte, maxMetrics-len(text))))); err != nil || got.waiting != 4 {
		t.Errorf("an answer of maxMetrics bytes: %+v, %v", got, err)
	}
}

func FuzzParseLoad(f *testing.F) {
	for _, seed := range []string{
		"vllm:num_requests_waiting{a=\"b\"} 3\n", "sglang:token_usage 0.5 17",
		"llamacpp:requests_deferred{a=\"\\\"}\"} 1e300\r\n",
		"# x\nvllm:num_requests_running NaN\n", "vllm:kv_cache_usage_perc 7\nvllm:num_requests_waiting 0x1p9\n", "{\n}",
		"vllm: {", "a{b=\"c",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseLoad(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("a complete answer: %v", err)
		}
		if got.waiting < 0 || got.running < 0 || got.kvUsage < 0 || got.kvUsage > 1 || math.IsNaN(got.kvUsage) {
			t.Fatalf("%+v", got)
		}
		if got.found && got.engine == "" {
			t.Fatalf("%+v: a load without an engine", got)
		}
		again, err := parseLoad(iotest.HalfReader(bytes.NewReader(text)))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("read in pieces: %+v, %v; whole: %+v", again, err, got)
		}
	})
}
