package telemetry

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each mistake in a variable that counts is told with the variable, its value and the
// way out.
func TestEveryMistakeInTheEnvironmentIsTold(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const plain, safe = "http://c", "https://c"
	for _, c := range []struct {
		otlp, env string // the variable without OTEL_, and its value
		off       bool   // no traces
		warn      string
	}{
		{plain, "EXPORTER_OTLP_TIMEOUT=10s", false, "a number of milliseconds, without a unit, from 1 to 86400000; 10000 is used"},
		{plain, "EXPORTER_OTLP_TRACES_TIMEOUT=0", false, "milliseconds"},
		{plain, "EXPORTER_OTLP_COMPRESSION=zstd", false, "gzip or none; none is used"},
		{plain, "EXPORTER_OTLP_TRACES_COMPRESSION=zstd", false, "gzip or none; none is used"},
		{plain, "EXPORTER_OTLP_CERTIFICATE=/nope", false, "certificates are for a collector at https://"},
		{safe, "EXPORTER_OTLP_CERTIFICATE=/nope", true, "the file cannot be read: no such file or directory; give a file with certificates in PEM. Traces are off."},
		{safe, "EXPORTER_OTLP_TRACES_CERTIFICATE=" + empty, true, "the file has no certificate"},
		{safe, "EXPORTER_OTLP_CLIENT_CERTIFICATE=/nope OTEL_EXPORTER_OTLP_CLIENT_KEY=/nope", true, "no such file or directory; give files with a certificate and its key"},
		{safe, "EXPORTER_OTLP_CLIENT_KEY=/nope", true, "one is set without the other"},
		{plain, "TRACES_SAMPLER=sometimes", false, "the samplers are always_on"},
		{plain, "TRACES_SAMPLER_ARG=abc OTEL_TRACES_SAMPLER=traceidratio", false, "a number from 0 to 1; 1 is used"},
		{plain, "RESOURCE_ATTRIBUTES=foo", false, `"foo" has not the form key=value; it is left out`},
		{plain, "RESOURCE_ATTRIBUTES=a=50%", false, "write it as %25"},
		{plain, "BSP_SCHEDULE_DELAY=5s", false, "milliseconds, without a unit"},
		{plain, "BSP_EXPORT_TIMEOUT=30s", false, "milliseconds, without a unit"},
		{plain, "BSP_MAX_QUEUE_SIZE=many", false, "a number of requests from 1 to 1048576; 2048 is used"},
		{plain, "BSP_MAX_EXPORT_BATCH_SIZE=0", false, "a number of spans from 1 to 65536; 512 is used"},
		{plain, "SPAN_ATTRIBUTE_COUNT_LIMIT=few", false, "a whole number, -1 for no bound; 128 is used"},
		{plain, "SDK_DISABLED=yes", false, "true or false; false is used"},
	} {
		var out bytes.Buffer
		tr, err := NewTraces(TracesConfig{OTLP: c.otlp, Sample: 1, Env: env(strings.Fields("OTEL_" + c.env)...), Log: slog.New(slog.NewTextHandler(&out, nil))})
		said := strings.ReplaceAll(out.String(), `\"`, `"`)
		name, value, _ := strings.Cut(strings.Fields(c.env)[0], "=")
		if err != nil || (tr == nil) != c.off || strings.Count(said, "\n") != 1 || !strings.Contains(said, "OTEL_"+name) || !strings.Contains(said, c.warn) ||
			!strings.Contains(said, value) && name != "EXPORTER_OTLP_CLIENT_KEY" {
			t.Errorf("%s: %v, traces %v, the log is %s", c.env, err, tr != nil, said)
		}
	}
}

// mistakes are what the SDK finds in the environment of the process by itself, and
// tells on standard error.
var mistakes = []string{"OTEL_EXPORTER_OTLP_TIMEOUT=10s", "OTEL_EXPORTER_OTLP_CERTIFICATE=/nope", "OTEL_EXPORTER_OTLP_HEADERS=secret", "OTEL_EXPORTER_OTLP_ENDPOINT=http://u:secret%zz@c",
	"OTEL_TRACES_SAMPLER=sometimes", "OTEL_RESOURCE_ATTRIBUTES=foo,a=%", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/nope", "OTEL_EXPORTER_OTLP_CLIENT_KEY=/nope", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}

// OB-01: the SDK, which repeats what it cannot read, writes nothing, and the
// environment of the process changes nothing that Env does not say. It reads that of
// a process of its own, this test's again.
func TestTheSDKWritesNothingByItself(t *testing.T) {
	const again = "TIERWAY_TEST_AGAIN"
	if os.Getenv(again) != "" {
		tr, err := NewTraces(TracesConfig{OTLP: "http://c", Sample: 1, Log: slog.New(slog.DiscardHandler)})
		if err != nil || tr == nil {
			t.Errorf("traces %v, %v", tr, err)
		}
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(append(os.Environ(), again+"=1"), mistakes...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v, standard error:\n%s\n%s", err, &stderr, out)
	}
}
