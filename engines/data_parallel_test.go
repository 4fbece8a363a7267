package engines

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHeaderSelectsTheRank(t *testing.T) {
	s := NewRanks(Config{Name: "e", Model: "m", CacheTokens: 160}, 3)
	defer s.Close()
	send := func(method, path, rank string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"model":"m","prompt":"a b","max_tokens":1}`))
		if rank != "" {
			r.Header.Set("X-data-parallel-rank", rank)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	for rank, name := range map[string]string{"0": "e@0", "2": "e@2"} {
		if w := send(http.MethodPost, "/v1/completions", rank); w.Code != http.StatusOK || w.Header().Get("Server") != name {
			t.Errorf("rank %s: %d from %s", rank, w.Code, w.Header().Get("Server"))
		}
	}
	for range 3 {
		send(http.MethodPost, "/v1/completions", "")
	}
	for rank, want := range []int64{2, 1, 2} {
		if got := s.Rank(rank).Stats().Requests["/v1/completions"]; got != want {
			t.Errorf("rank %d got %d requests, want %d", rank, got, want)
		}
	}
	for _, rank := range []string{"3", "-1", "x"} {
		if w := send(http.MethodPost, "/v1/completions", rank); w.Code != http.StatusBadRequest ||
			!strings.Contains(w.Body.String(), "out of range [0, 3)") {
			t.Errorf("rank %s: %d %s", rank, w.Code, w.Body)
		}
	}
	metrics := send(http.MethodGet, "/metrics", "").Body.String()
	for _, row := range []string{`vllm:num_requests_running{engine="0",model_name="m"} 0`,
		`vllm:generation_tokens_total{engine="2",model_name="m"} 2`,
		`vllm:cache_config_info{engine="1",block_size="16",num_gpu_blocks="10"} 1`} {
		if !strings.Contains(metrics, row+"\n") {
			t.Errorf("no %s in\n%s", row, metrics)
		}
	}
	if sources := send(http.MethodGet, "/kv_event_sources", "").Body.String(); strings.TrimSpace(sources) != "{}" {
		t.Errorf("sources without publishers: %s", sources)
	}
}
