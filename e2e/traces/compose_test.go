package traces

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

// variable matches a variable of Docker Compose: ${NAME}, ${NAME:-default if unset or empty},
// ${NAME-default if unset}, or an error message with ? instead of -.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?])([^}]*))?\}`)

// interpolate replaces variables like Docker Compose.
func interpolate(t *testing.T, text string, set map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(use string) string {
		part := variable.FindStringSubmatch(use)
		value, ok := set[part[1]]
		if strings.HasPrefix(part[2], ":") {
			ok = ok && value != ""
		}
		switch {
		case ok || part[2] == "":
			return value
		case strings.HasSuffix(part[2], "?"):
			t.Fatalf("compose refuses to start: %s: %s", part[1], part[3])
		}
		return part[3]
	})
}

// composed reads the gateway's environment in docker-compose.yml. set holds the user's environment.
func composed(t *testing.T, set map[string]string) (env []string, at string) {
	t.Helper()
	root, err := gateway.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string `yaml:"environment"`
			Volumes     []string          `yaml:"volumes"`
			Profiles    []string          `yaml:"profiles"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for name, value := range file.Services["tierway"].Environment {
		env = append(env, name+"="+interpolate(t, value, set))
	}
	config, _, _ := strings.Cut(file.Services["tierway"].Volumes[0], ":")
	return env, filepath.Join(root, config)
}

// bare removes all variables that the container does not have from the environment, except those that
// the tests need.
func bare(t *testing.T) {
	t.Helper()
	had := os.Environ()
	t.Cleanup(func() {
		for _, v := range had {
			name, value, _ := strings.Cut(v, "=")
			if err := os.Setenv(name, value); err != nil {
				t.Error(err)
			}
		}
	})
	for _, v := range had {
		if name, _, _ := strings.Cut(v, "="); name != "TIERWAY_BIN" && name != "PATH" && name != "HOME" {
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestTheGatewayOfComposeExports(t *testing.T) {
	r := newRig(t, 1)
	env, file := composed(t, map[string]string{
		"TIERWAY_KEY_SHA256": rig.Digest(rig.TenantKey), "TIERWAY_MODEL": "sim", "TIERWAY_WORKER_URL": r.Workers[0].URL(),
		"TIERWAY_OTLP": r.collector.URL, "POSTGRES_PASSWORD": "x",
	})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bare(t)
	r.Attach(gateway.Serve(t, string(text), env...))
	r.APIKey = rig.TenantKey
	t.Cleanup(r.Kill) // the container's drain takes longer than this test
	if status, _ := r.ask("composed", strings.ReplaceAll(body(prompt, true), "auto", "sim"), "Traceparent",
		sampled); status != 200 {
		t.Fatalf("status %d", status)
	}
	tr := r.collector.request("composed", 1)
	tr.checkNesting()
	call := tr.one("chat sim")
	if tr.root.service != gatewayService || tr.root.trace != callerTrace || tr.root.parent != callerSpan ||
		tr.one("llm_request").parent != call.id || tr.one("route").parent != tr.root.id {
		t.Errorf("compose's gateway exports %+v", tr.all)
	}
	tr.wantAttrs(tr.root, map[string]string{"tierway.tenant": "default", "tierway.tier": "default",
		"tierway.worker": "engine", "tierway.outcome": "ok"})
}

func TestComposeSendsTracesToItsJaeger(t *testing.T) {
	env, _ := composed(t, map[string]string{"TIERWAY_KEY_SHA256": "x"})
	said := strings.Join(env, "\n")
	if !strings.Contains(said, "OTEL_EXPORTER_OTLP_ENDPOINT=http://jaeger:4318") ||
		!strings.Contains(said, "OTEL_SERVICE_NAME=tierway") {
		t.Errorf("without variables of the user:\n%s", said)
	}
	off, _ := composed(t, map[string]string{"TIERWAY_KEY_SHA256": "x", "TIERWAY_OTLP": ""})
	if !strings.Contains(fmt.Sprintln(strings.Join(off, "\n")), "OTEL_EXPORTER_OTLP_ENDPOINT=\n") {
		t.Errorf("an empty TIERWAY_OTLP turns traces off, and here is %q", off)
	}
}
