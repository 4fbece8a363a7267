package control

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/memnet"
	"tierway/workers"
)

// TestAModelThatItsEngineDoesNotListIsLoggedOnce for each list, unless the engine accepts other names.
func TestAModelThatItsEngineDoesNotListIsLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		status workers.Status
		want   int
	}{
		"no list":              {workers.Status{}, 0},
		"listed":               {workers.Status{Models: []string{"other", "m"}}, 0},
		"without its tag":      {workers.Status{Models: []string{"m:latest"}}, 0},
		"llama.cpp":            {workers.Status{Models: []string{"other"}, Engine: "llamacpp"}, 0},
		"another one":          {workers.Status{Models: []string{"other"}}, 1},
		"another one with tag": {workers.Status{Models: []string{"m:7b"}, Engine: "ollama"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctl := newTestControl(t, small)
			var log strings.Builder
			ctl.Pools.log = slog.New(slog.NewTextHandler(&log, nil))
			w := ctl.Pools.fleet.Get("w0")
			ctl.Pools.observe(w, c.status)
			ctl.Pools.observe(w, c.status)
			if n := strings.Count(log.String(), "model=m"); n != c.want {
				t.Errorf("%d lines: %s", n, log.String())
			}
		})
	}
}

// TestAModelOfAReloadIsComparedWithTheLists, and the one before, which the engine lists, is not logged.
func TestAModelOfAReloadIsComparedWithTheLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		engine := network.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","owned_by":"vllm"}]}`)
		}))
		defer engine.Close()
		text := strings.NewReplacer("http://127.0.0.1:9", engine.URL, "health: { path: \"off\" }\n", "").Replace(small)
		ctl := newTestControlOn(t, network, text)
		var log strings.Builder
		ctl.Pools.log = slog.New(slog.NewTextHandler(&log, nil))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { ctl.Run(ctx) })
		until(t, "the engine's models are known", func() bool { return len(ctl.Pools.fleet.Get("w0").Status().Models) > 0 })
		ctl.source = func() (*config.File, error) {
			return config.Parse("test.yaml", []byte("classifier: { preset: none }\nstore: { sql: \"\" }\n"+
				strings.Replace(text, "model: m", "model: other", 1)), func(string) (string, bool) { return "", false })
		}
		if _, err := ctl.Reload(t.Context(), ReloadRequest{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // virtual: the next health checks
		stop()
		running.Wait()
		n := strings.Count(log.String(), "does not list the model")
		if n != 1 || !strings.Contains(log.String(), "model=other") {
			t.Errorf("%d lines: %s", n, log.String())
		}
	})
}
