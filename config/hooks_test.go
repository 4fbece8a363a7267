package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tierway/hooks"
)

// hooked returns a configuration with hooks and more keys.
func hooked(more string, lines ...string) string {
	return "auth: { required: false }\nhooks: [ " + strings.Join(lines, ", ") + " ]\n" +
		"tiers: [ { name: small, model: m, workers: [ { name: w, url: \"http://127.0.0.1:9\" } ] } ]\n" + more
}

func TestHooksHaveTheirDefaults(t *testing.T) {
	f, err := Parse("config.yaml", []byte(hooked("", `{ name: a, url: "http://h:1/x?y=z" }`,
		`{ name: b, type: ext_proc, url: "h:50051", timeout: 1s, on_error: block, api_key_env: HOOK_KEY }`)),
		environment(map[string]string{"HOOK_KEY": "secret-of-the-hook"}))
	if err != nil {
		t.Fatal(err)
	}
	all := f.HookSpecs()
	if a := all[0]; a.Type != hooks.TypeHTTP || a.Timeout != 200*time.Millisecond || a.OnError != hooks.Block ||
		a.OnReject != hooks.Block403 || a.Transform || a.Shadow || f.HooksTimeout != time.Second {
		t.Errorf("%+v", a.Config)
	}
	if b := all[1]; b.Key != "secret-of-the-hook" || b.MaxReply <= int64(f.MaxBodyBytes) {
		t.Errorf("%+v", b.Config)
	}
	if text := fmt.Sprintf("%v %+v", all, all[1]); strings.Contains(text, "secret") {
		t.Errorf("the key is shown: %s", text)
	}
	if w := f.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
}

func TestProblemsOfHooksAreReported(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no url":         {hooked("", `{ name: a }`), "hooks[0].url"},
		"no scheme":      {hooked("", `{ name: a, url: "h:1/x" }`), "http://host:port/path"},
		"grpc with http": {hooked("", `{ name: a, url: "grpc://h:1" }`), "type: ext_proc"},
		"http with grpc": {hooked("", `{ name: a, type: ext_proc, url: "http://h:1" }`), "grpc://host:port"},
		"grpc path":      {hooked("", `{ name: a, type: ext_proc, url: "h:1/x" }`), "is not host:port"},
		"no port":        {hooked("", `{ name: a, type: ext_proc, url: "h" }`), "is not host:port"},
		"password":       {hooked("", `{ name: a, url: "http://user:hunter2@h:1" }`), "api_key_env"},
		"metadata":       {hooked("", `{ name: a, url: "http://169.254.169.254/" }`), "metadata"},
		"own address":    {hooked("", `{ name: a, url: "http://127.0.0.1:8080/" }`), "the gateway's own address (listen)"},
		"twice": {hooked("", `{ name: a, url: "http://h:1" }`, `{ name: a, url: "http://h:2" }`),
			`"a" is already the name at hooks[0].name`},
		"long timeout": {hooked("", `{ name: a, url: "http://h:1", timeout: 2s }`), "exceeds hooks_timeout (1s)"},
		"unknown type": {hooked("", `{ name: a, url: "http://h:1", type: grpc }`), "hooks[0].type"},
		"tls without":  {hooked("", `{ name: a, url: "http://h:1", tls: { cert: a } }`), "only one of cert and key"},
		"missing ca":   {hooked("", `{ name: a, url: "https://h:1", tls: { ca: /nowhere } }`), "cannot read"},
		"no variable":  {hooked("", `{ name: a, url: "http://h:1", api_key_env: NOT_SET }`), "NOT_SET is not set"},
		"two keys":     {hooked("", `{ name: a, url: "http://h:1", api_key_env: KEY, api_key_file: f }`), "keep one of the two"},
	} {
		_, err := Parse("config.yaml", []byte(c.text), environment(map[string]string{"KEY": "12345678"}))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A guardrail that some requests skip must be known to its owner.
func TestHolesOfGuardrailsAreWarnings(t *testing.T) {
	const guard = `{ name: a, url: "http://h:1" }`
	pools := "pools: [ { name: p, model: x, serves: [images], paths: [/raw/*], " +
		"workers: [ { name: v, url: \"http://127.0.0.1:7\" } ] } ]\n"
	pool := func(name string) string {
		return fmt.Sprintf("  - { name: %s, model: m%[1]s, serves: [chat, images, audio], workers: [ { name: w%[1]s, "+
			"url: \"http://%[1]s:7\" } ] }\n", name)
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"passed paths and forms": {hooked(pools, guard), []string{"requests on these paths are not sent to the hooks",
			"pools[0].serves: forms with files (multipart/form-data) for audio and images are not sent to the hooks"}},
		"several pools": {hooked("pools:\n"+strings.Join([]string{pool("a"), pool("b"), pool("c")}, ""), guard),
			[]string{"pools[0].serves: forms with files (multipart/form-data) for audio and images are not sent to the hooks; " +
				"JSON bodies are; also at pools[1].serves, pools[2].serves (remove audio"}},
		"only recorded": {hooked(pools, `{ name: a, url: "http://h:1", shadow: true }`), nil},
		"passes on error": {hooked("", `{ name: a, url: "http://h:1", on_error: pass }`),
			[]string{"requests are not checked while the hook fails"}},
		"may do nothing": {hooked("", `{ name: a, url: "http://h:1", on_error: pass, on_reject: pass }`), nil},
		"blocking shadow": {hooked("", `{ name: a, url: "http://h:1", on_error: block, shadow: true }`),
			[]string{"has no effect with shadow: true"}},
		"no hooks": {"auth: { required: false }\nhooks_timeout: 2s\ntiers: [ { name: s, model: m, workers: [ { name: w, url: \"http://127.0.0.1:9\" } ] } ]\n",
			[]string{"has no effect without hooks"}},
	} {
		f, err := Parse("config.yaml", []byte(c.text), environment(nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		all := f.Warnings()
		if len(all) != len(c.want) {
			t.Errorf("%s: the warnings are %v", name, all)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(all.Error(), want) {
				t.Errorf("%s: warning %d of %v is not %q", name, i, all, want)
			}
		}
	}
}
