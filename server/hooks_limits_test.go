package server

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// guardedTiersYAML has a tenant that may use the lower one of two tiers. Its key is its name.
func guardedTiersYAML() string {
	return fmt.Sprintf(`
max_body_bytes: 64KiB
auth: { keys: [ { name: acme, sha256: %s, tiers: [small], priority: background } ] }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ %%[1]s ] }
  - { name: large, model: fake-70b, workers: [ { name: l0, url: "http://127.0.0.1:9" } ] }
`, digestHex("acme"))
}

// H3: a hook can change neither the tenant nor the key, the path or stream, and gains no permission of another model.
func TestH3AChangeThatNoHookMayMakeIsRefused(t *testing.T) {
	long := strings.Repeat("a", 64<<10)
	for name, answer := range map[string]string{
		"stream":          transformTo(chatBody("small", "hidden-words", `,"stream":true`)),
		"tenant":          `{"action":"allow","tenant":"other"}`,
		"tenant and body": `{"action":"transform","tenant":"other","body":` + chatBody("small", "hidden-words", "") + `}`,
		"key":             `{"action":"allow","key":"tw-other"}`,
		"path":            `{"action":"allow","path":"/v1/embeddings"}`,
		"too long":        transformTo(chatBody("small", long, "")),
		"twice":           transformTo(chatBody("small", "hidden-words", `,"model":"large"`)),
		"no object":       transformTo(`"text"`),
		"no messages":     transformTo(`{"model":"small","messages":7}`),
	} {
		synctest.Test(t, func(t *testing.T) {
			hook := newHookService(t, says(answer))
			r, engine := newHookRig(t, guardedTiersYAML(), hook.line("guard", ", transform: true"))
			got := r.post("/v1/chat/completions", chatBody("small", "Hi", ""), "Authorization", "Bearer acme")
			if got.status != 503 || got.header.Get("X-Tierway-Hooks") != "guard:refused" || len(engine.Requests()) != 0 {
				t.Errorf("%s, block: %d %v %s", name, got.status, got.header, got.body)
			}
			if line := `tierway_hook_seconds_count{hook="guard",result="refused"} 1`; !strings.Contains(r.scrape(), line) {
				t.Errorf("%s is not counted", name)
			}
			if d := r.last(); d.Tenant != "acme" || d.Hooks[0].Error == "" || strings.Contains(d.Hooks[0].Error, "hidden") {
				t.Errorf("%s: the record is %+v", name, d)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			hook := newHookService(t, says(answer))
			r, engine := newHookRig(t, guardedTiersYAML(), hook.line("guard", ", transform: true, on_error: pass"))
			got := r.post("/v1/chat/completions", chatBody("small", "Hi", ""), "Authorization", "Bearer acme")
			if text := sentField(t, engine, "messages"); got.status != 200 || !strings.Contains(text, `"Hi"`) {
				t.Errorf("%s, pass: %d, the engine received %s", name, got.status, text)
			}
		})
	}
}

// H3: the tier of a changed model is chosen by the tenant's own permissions.
func TestH3AChangedModelNeedsThePermissionOfTheTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, says(transformTo(chatBody("large", "hidden-words", ""))))
		r, engine := newHookRig(t, guardedTiersYAML(), hook.line("guard", ", transform: true, on_error: pass"))
		got := r.post("/v1/chat/completions", chatBody("small", "Hi", ""), "Authorization", "Bearer acme")
		if got.status != http.StatusNotFound || !strings.Contains(got.body, "model_not_found") ||
			len(engine.Requests()) != 0 {
			t.Errorf("%d %s", got.status, got.body)
		}
		hook.answerWith(says(transformTo(chatBody("fake-7b", "hidden-words", ""))))
		if got = r.post("/v1/chat/completions", chatBody("large", "Hi", ""), "Authorization",
			"Bearer acme"); got.status != 200 {
			t.Errorf("a model that the tenant may use: %d %s", got.status, got.body)
		}
	})
}

// Without transform: true, a changed body is an error of the hook: the owner relies on the change.
func TestATransformationNeedsTheSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, says(transformTo(chatBody("small", "hidden-words", ""))))
		r, engine := newHookRig(t, plain, hook.line("guard", ""))
		got := r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
		if got.status != 503 || got.header.Get("X-Tierway-Hooks") != "guard:refused" || len(engine.Requests()) != 0 {
			t.Errorf("%d %v", got.status, got.header)
		}
	})
}

// What depends on the text follows the changed body: the estimate, the chain of blocks and the tier.
func TestEstimateAndAffinityFollowTheChangedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, says(sayAllow))
		r, _ := newHookRig(t, plain, hook.line("guard", ", transform: true"))
		long := chatBody("small", strings.Repeat("many words ", 2000), "")
		r.post("/v1/chat/completions", long)
		direct := r.last()
		hook.answerWith(says(transformTo(long)))
		r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
		if d := r.last(); d.Features.Estimate < 5000 || d.Features.Prefix != direct.Features.Prefix ||
			d.Features.Blocks != direct.Features.Blocks {
			t.Errorf("changed: %+v\ndirect: %+v", d.Features, direct.Features)
		}
	})
}

// The memory of max_buffered_bytes includes the answers of hooks.
func TestAnswersOfHooksCountInMaxBufferedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const yaml = "max_body_bytes: 1MiB\nmax_buffered_bytes: 4MiB\n"
		answer := transformTo(chatBody("small", strings.Repeat("a", 900<<10), ""))
		hook := newHookService(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(answer[:len(answer)-1]))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(150 * time.Millisecond) // all answers are held at the same time
			_, _ = w.Write([]byte(answer[len(answer)-1:]))
		})
		r, _ := newHookRig(t, yaml+plain, hook.line("guard", ", transform: true"))
		statuses := make(chan int)
		for range 20 {
			go func() { statuses <- r.post("/v1/chat/completions", chatBody("small", "Hi", "")).status }()
		}
		count := map[int]int{}
		for range 20 {
			count[<-statuses]++
		}
		if count[200] == 0 || count[503] == 0 || count[200]+count[503] != 20 {
			t.Errorf("the statuses are %v", count)
		}
		if got := r.post("/v1/chat/completions", chatBody("small", "Hi", "")); got.status != 200 {
			t.Errorf("afterwards: %d %s; a lack of memory is no failure of the hook", got.status, got.body)
		}
	})
}

// A form with a file is not sent to a hook, and neither is a path that passes through.
func TestFormsAndPassedPathsSkipTheHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, says(sayReject))
		passed := startServer(t, fakeEngine())
		pools := "pools: [ { name: raw, paths: [/raw/*], workers: [ { name: raw0, url: \"" + passed + "\" } ] } ]\n"
		r, _ := newHookRig(t, plain+pools,
			hook.line("guard", ""))
		const form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nsmall\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--b--\r\n"
		r.post("/v1/audio/transcriptions", form, "Content-Type", "multipart/form-data; boundary=b")
		r.post("/raw/x", "{}")
		r.do(http.MethodGet, "/v1/models", "")
		if n := len(hook.calls()); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

// A form of an endpoint whose API has none is refused, so that it passes no hook unseen. The others take forms.
func TestFormsAreRefusedWhereTheAPIHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, says(sayReject))
		hooked, engine := newHookRig(t, plain, hook.line("guard", ""))
		open := newRig(t, plain, fakeEngine())
		const form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nsmall\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nHi\r\n--b--\r\n"
		for path, want := range map[string]int{
			"/v1/images/generations": 415, "/v1/audio/speech": 415, "/openai/deployments/small/images/generations": 415,
			"/v1/chat/completions": 415, "/v1/images/edits": 200, "/v1/audio/translations": 200,
		} {
			for name, r := range map[string]*rig{"with hooks": hooked, "without hooks": open} {
				before := len(engine.Requests())
				got := r.post(path, form, "Content-Type", "multipart/form-data; boundary=b")
				if got.status != want && (want != 200 || got.status == 415) {
					t.Errorf("%s, %s: %d %s", name, path, got.status, got.body)
				}
				if want != 200 && (!strings.Contains(got.body, "send application/json") || len(engine.Requests()) != before) {
					t.Errorf("%s, %s: %s", name, path, got.body)
				}
			}
		}
		if n := len(hook.calls()); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

// A reload keeps an unchanged hook with its breaker. Requests in flight keep the hooks of their configuration, and the
// connections of removed hooks close.
func TestAReloadReplacesTheHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var once sync.Once
		started := make(chan struct{})
		old := newHookService(t, func(w http.ResponseWriter, _ *http.Request) {
			once.Do(func() { close(started) })
			<-release
			says(sayReject)(w, nil)
		})
		next := newHookService(t, says(sayAllow))
		engine := startServer(t, fakeEngine())
		r, from := newReloadRig(t, "# %s\n"+hookedYAML(engine, old.line("old", ", timeout: 60s")))
		results := make(chan httpAnswer)
		go func() { results <- r.post("/v1/chat/completions", chatBody("small", "Hi", "")) }()
		<-started
		from.write("store: { sql: \"\" }\nclassifier: { preset: none }\n" + hookedYAML(engine, next.line("next", "")))
		r.reload()
		if got := r.post("/v1/chat/completions", chatBody("small", "Hi", "")); got.status != 200 ||
			got.header.Get("X-Tierway-Hooks") != "next" {
			t.Errorf("after the reload: %d %v", got.status, got.header)
		}
		close(release)
		if got := <-results; got.status != 403 || got.header.Get("X-Tierway-Hooks") != "old:rejected" {
			t.Errorf("in flight: %d %v", got.status, got.header)
		}
		if text := r.scrape(); strings.Contains(text, `hook="old"`) || !strings.Contains(text, `hook="next"`) {
			t.Error("the metrics have the removed hook, or not the new one")
		}
		was := r.control.Snapshot().Hooks.Hooks[0]
		from.write("store: { sql: \"\" }\nclassifier: { preset: none }\nretry: { attempts: 3 }\n" +
			hookedYAML(engine, next.line("next", "")))
		r.reload()
		if r.control.Snapshot().Hooks.Hooks[0] != was {
			t.Error("an unchanged hook was replaced")
		}
	})
}

// hookedYAML is one tier with an engine and hooks.
func hookedYAML(engine string, lines ...string) string {
	return "auth: { required: false }\nhealth: { path: \"off\" }\nhooks_timeout: 60s\nhooks: [ " + strings.Join(lines,
		", ") +
		" ]\ntiers: [ { name: small, model: fake-7b, workers: [ { name: w0, url: \"" + engine + "\" } ] } ]\n"
}

// A hook gets its key, and no output shows it.
func TestTheKeyOfAHookIsSentAndHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := t.TempDir() + "/key"
		if err := os.WriteFile(file, []byte("hook-secret-key\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		hook := newHookService(t, says(sayAllow))
		r, _ := newHookRig(t, plain, hook.line("guard", fmt.Sprintf(", api_key_file: %q", file)))
		r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
		if got := hook.headers[0].Get("Authorization"); got != "Bearer hook-secret-key" {
			t.Errorf("the hook receives %q", got)
		}
		if text := fmt.Sprintf("%+v %s %s", r.control.Snapshot().Hooks.Hooks[0].Spec, r.logs,
			r.access); strings.Contains(text, "secret") {
			t.Errorf("the key is shown: %s", text)
		}
	})
}

// The hooks of an explanation are called only on request, and change nothing of the state.
func TestExplainCallsHooksOnRequestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, says(transformTo(chatBody("small", "hidden-words", `,"max_tokens":7`))))
		yaml := fmt.Sprintf("admin: { keys: [ { name: ops, sha256: %s } ] }\n", digestHex("ops")) + plain
		hooked, _ := newHookRig(t, yaml, hook.line("guard", ", transform: true"))
		r := adminRigOf(hooked)
		e := r.explain(200, order{"request": hiRequest("small")})
		if len(hook.calls()) != 0 || !strings.Contains(fmt.Sprint(e.Notes), "hooks were not called") {
			t.Errorf("%d calls, %+v", len(hook.calls()), e)
		}
		called := r.explain(200, order{"request": hiRequest("small"), "hooks": true})
		if len(hook.calls()) != 1 || called.MaxTokens != 7 || len(called.Hooks) != 1 ||
			called.Hooks[0].Result != "transformed" {
			t.Errorf("%d calls, %+v", len(hook.calls()), called)
		}
		if strings.Contains(hooked.scrape(), `tierway_hook_seconds_count{hook="guard"`) {
			t.Error("the metrics count the explanation")
		}
		draft := strings.ReplaceAll(hooked.text, hook.url, startServer(t, http.NotFoundHandler()))
		r.explain(200, order{"request": hiRequest("small"), "hooks": true, "draft": draft})
		if len(hook.calls()) != 2 {
			t.Errorf("%d calls with a draft that changes the hook", len(hook.calls()))
		}
	})
}
