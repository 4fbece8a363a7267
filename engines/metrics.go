package engines

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// models serves GET /v1/models.
func (e *Engine) models(w http.ResponseWriter, _ *request) error {
	return writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": e.c.Model, "object": "model", "created": e.c.Clock().Unix(), "owned_by": "tierway-engines",
		"root": e.c.Model, "parent": nil, "max_model_len": e.c.Context}}})
}

// health serves GET /health with an empty 200, as vLLM does.
func (e *Engine) health(w http.ResponseWriter, _ *request) error {
	w.WriteHeader(http.StatusOK)
	return nil
}

// metrics serves GET /metrics: the metrics that the gateway reads, under vLLM's names.
func (e *Engine) metrics(w http.ResponseWriter, _ *request) error {
	var b strings.Builder
	e.appendMetrics(&b)
	return writeBytes(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(b.String()))
}

// appendMetrics writes the engine's metrics, each with the engine's rank.
func (e *Engine) appendMetrics(b *strings.Builder) {
	if e.c.Handover != "" {
		e.c.Peers.expire()
	}
	running, waiting, _ := e.slots.state()
	usage := 0.0
	if e.c.CacheTokens > 0 {
		usage = min(float64(e.inUse.Load())/float64(e.c.CacheTokens), 1)
	}
	row := func(name, kind string, value float64) {
		fmt.Fprintf(b, "# TYPE vllm:%s %s\nvllm:%s{engine=\"%d\",model_name=%q} %g\n", name, kind, name, e.rank, e.c.Model,
			value)
	}
	row("num_requests_running", "gauge", float64(running))
	row("num_requests_waiting", "gauge", float64(int64(waiting)+e.loading.Load()))
	row("kv_cache_usage_perc", "gauge", usage)
	row("prompt_tokens_total", "counter", float64(e.computed.Load()))
	row("generation_tokens_total", "counter", float64(e.generated.Load()))
	if e.c.CacheTokens > 0 {
		fmt.Fprintf(b, "# TYPE vllm:cache_config_info gauge\n"+
			"vllm:cache_config_info{engine=\"%d\",block_size=%q,num_gpu_blocks=%q} 1\n",
			e.rank, strconv.Itoa(e.cache.size), strconv.Itoa(e.cache.capacity))
	}
}
