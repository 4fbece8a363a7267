package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CF-02: invalid values are rejected with line and path.
func TestTelemetryAndDecisionsAreChecked(t *testing.T) {
	const otlp = " (write the collector's URL, such as http://127.0.0.1:4318; set its key in OTEL_EXPORTER_OTLP_HEADERS)"
	const ui = " (write the URL of the trace viewer, such as http://127.0.0.1:16686)"
	cases := map[string]struct {
		src  string
		want []string
	}{
		"all of it": {"telemetry: {otlp: \"http://otel:4318\", sample: 0.1, trace_ui: " +
			"\"https://traces.example.com/jaeger/\", clients: link, tenants: 0}\n" +
			"decisions: {keep: 0, file: log/decisions.jsonl, max_size: 1MiB, max_files: 1}\n", nil},
		"nothing of it":        {"telemetry:\ndecisions: {}\n", nil},
		"sampling alone":       {"telemetry: {sample: 0}\n", nil}, // the environment may name a collector
		"a socket in brackets": {"telemetry: {otlp: \"https://[::1]:4318/base\", trace_ui: \"\"}\n", nil},
		"no addresses": {"telemetry: {otlp: \"otel:4318\", trace_ui: \"javascript:alert(1)\"}\n", []string{
			"3:19: telemetry.otlp: is not a URL" + otlp, "3:42: telemetry.trace_ui: is not a URL" + ui}},
		"other schemes": {"telemetry: {otlp: \"grpc://otel:4317\", trace_ui: \"//jaeger\"}\n", []string{
			"3:19: telemetry.otlp: has a scheme other than http or https" + otlp, "3:49: telemetry.trace_ui: is not a URL" +
				ui}},
		"no hosts": {"telemetry: {otlp: \"http:///v1/traces\", trace_ui: \"https://:1/\"}\n", []string{
			"3:19: telemetry.otlp: has no host after http://" + otlp, "3:50: telemetry.trace_ui: has no host after https://" +
				ui}},
		"a password and a key": {"telemetry: {otlp: \"http://u:hunter2@otel:4318\", trace_ui: " +
			"\"http://jaeger/?key=hunter2\"}\n", []string{
			"3:19: telemetry.otlp: contains a user or a password, which the admin plane would show" + otlp,
			"3:59: telemetry.trace_ui: has a query or a fragment" + ui}},
		"signs that end a line": {"telemetry: {otlp: \"http://otel:4318/a b\", trace_ui: \"http://jaeger/#\"}\n", []string{
			"3:19: telemetry.otlp: is not a URL" + otlp, "3:53: telemetry.trace_ui: has a query or a fragment" + ui}},
		"numbers and words": {"telemetry: {sample: 1.5, clients: parnet, tenants: 1001, headers: {a: b}}\ndecisions: " +
			"{keep: 100001, max_files: 0}\n", []string{
			`3:21: telemetry.sample: want a number from 0 to 1, got "1.5"`,
			`3:35: telemetry.clients: want one of parent, link, got "parnet" (did you mean parent?)`,
			`3:52: telemetry.tenants: want an integer from 0 to 1000, got "1001"`,
			`3:58: telemetry.headers: unknown key (known: otlp, sample, trace_ui, clients, tenants)`,
			`4:19: decisions.keep: want an integer from 0 to 100000, got "100001"`,
			`4:38: decisions.max_files: want an integer from 1 to 100, got "0"`}},
		"a file too short to turn": {"decisions: {file: d.jsonl, max_size: 512KiB, max_files: 101}\n", []string{
			"3:38: decisions.max_size: 512KiB is less than the minimum of 1MiB (set at least 1MiB)",
			`3:57: decisions.max_files: want an integer from 1 to 100, got "101"`}},
		"a folder": {"decisions: {file: logs/}\n", []string{
			`3:19: decisions.file: "logs/" is not a file name (write a path, such as decisions.jsonl, relative to the directory of this file)`}},
		"sizes of no file": {"decisions: {max_size: 10MiB, max_files: 2}\n", []string{
			"3:23: warning: decisions.max_size: has no effect without decisions.file (set decisions.file, or remove the key; " +
				"decisions.keep limits the records in memory)",
			"3:41: warning: decisions.max_files: has no effect without decisions.file (set decisions.file, or remove the key; " +
				"decisions.keep limits the records in memory)"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(append([]string{}, c.want...), problemsOf(t, keys+small+c.src, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// OB-01: no problem contains a password from an address.
func TestProblemsDoNotShowACollectorPassword(t *testing.T) {
	src := keys + small + "telemetry:\n  otlp: http://u:hunter2@otel:4318\n  trace_ui: ${UI}\n"
	_, err := Parse("f", []byte(src), environment(map[string]string{"UI": "http://u:hunter2@jaeger"}))
	var problems Problems
	ok := errors.As(err, &problems)
	if !ok {
		t.Fatalf("%v", err)
	}
	var out strings.Builder
	if err := problems.Format(&out, []byte(src)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hunter2") || len(problems) != 2 {
		t.Error(out.String())
	}
}

func TestTraceURLNeedsATraceUI(t *testing.T) {
	for _, c := range []struct{ ui, id, want string }{
		{"", "4bf9", ""}, {"http://jaeger:16686", "", ""},
		{"http://jaeger:16686", "4bf9", "http://jaeger:16686/trace/4bf9"},
		{"https://x/jaeger/", "4bf9", "https://x/jaeger/trace/4bf9"},
	} {
		if got := (Telemetry{TraceUI: c.ui}).TraceURL(c.id); got != c.want {
			t.Errorf("%q and %q: %q", c.ui, c.id, got)
		}
	}
}

func TestDecisionFileIsResolvedAgainstTheConfigurationsFolder(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"d.jsonl": filepath.Join(dir, "d.jsonl"), "/var/d.jsonl": "/var/d.jsonl",
		`""`: ""} {
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, []byte(keys+small+"decisions: {file: "+name+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Load(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f.Decisions.File != want {
			t.Errorf("%s became %s", name, f.Decisions.File)
		}
	}
}

func TestTelemetryChangesThatNeedARestart(t *testing.T) {
	old := parsed(t, keys+small, nil)
	f := parsed(t,
		keys+small+
			"telemetry: {otlp: \"http://otel:4318\", sample: 0, trace_ui: \"http://jaeger\", clients: link, tenants: 0}\n"+
			"decisions: {keep: 0, file: d.jsonl, max_size: 1MiB, max_files: 1}\n", nil)
	var got []string
	for _, c := range Changes(old, f) {
		got = append(got, c.Op+" "+c.Path+": "+c.Old+" → "+c.New+" ("+c.Effect+")")
	}
	want := []string{
		"replace telemetry.sample: 1 → 0 (live)", "replace telemetry.clients: parent → link (restart)",
		"replace telemetry.tenants: 50 → 0 (live)",
		"add telemetry.otlp:  → http://otel:4318 (restart)", "add telemetry.trace_ui:  → http://jaeger (live)",
		"replace decisions.keep: 2000 → 0 (live)", "replace decisions.max_size: 100MiB → 1MiB (restart)",
		"replace decisions.max_files: 5 → 1 (restart)", "add decisions.file:  → d.jsonl (restart)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if kept := f.KeepRestartOnly(old); kept.Telemetry.OTLP != "" || kept.Telemetry.Sample != 0 ||
		kept.Decisions.File != "" || kept.Decisions.Keep != 0 {
		t.Errorf("in force are %+v and %+v", kept.Telemetry, kept.Decisions)
	}
}
