package engines

import (
	"fmt"
	"net/http"
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

// metrics serves GET /metrics under vLLM's names.
func (e *Engine) metrics(w http.ResponseWriter, _ *request) error {
	running, waiting, _ := e.slots.state()
	usage := 0.0
	if e.c.CacheTokens > 0 {
		usage = min(float64(e.inUse.Load())/float64(e.c.CacheTokens), 1)
	}
	var b strings.Builder
	row := func(name, kind, labels string, value float64) {
		fmt.Fprintf(&b, "# TYPE vllm:%s %s\nvllm:%s{model_name=%q%s} %g\n", name, kind, name, e.c.Model, labels, value)
	}
	row("num_requests_running", "gauge", "", float64(running))
	row("num_requests_waiting", "gauge", "", float64(waiting))
	row("kv_cache_usage_perc", "gauge", "", usage)
	e.counts.change(func(c *counters) {
		row("prefix_cache_queries_total", "counter", "", float64(c.queried))
		row("prefix_cache_hits_total", "counter", "", float64(c.hit))
		row("prompt_tokens_total", "counter", "", float64(c.computed))
		row("generation_tokens_total", "counter", "", float64(c.generated))
		row("cache_config_info", "gauge", fmt.Sprintf(`,block_size="%d",num_gpu_blocks="%d"`, blockTokens, e.cache.capacity), 1)
		row("request_success_total", "counter", `,finished_reason="stop"`, float64(c.stops))
		// The second label of a family has no TYPE line of its own.
		fmt.Fprintf(&b, "vllm:request_success_total{model_name=%q,finished_reason=\"length\"} %g\n", e.c.Model, float64(c.lengths))
	})
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, err := w.Write([]byte(b.String()))
	return err
}
