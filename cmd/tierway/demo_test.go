package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// The demo has no configuration file, so no message may send its user to one.
func TestDemoErrorsNameFlagsAndNotAConfigurationFile(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, `--listen "0.0.0.0:0": the demo listens only on loopback: write an address such as`},
		{[]string{"--admin-listen", "10.0.0.1:8081"}, `--admin-listen "10.0.0.1:8081": the demo listens only on loopback`},
		{[]string{"--listen", "127.0.0.1:http"}, `--listen "127.0.0.1:http": the demo listens only on loopback`},
		{[]string{"--listen", "127.0.0.1:9", "--admin-listen", "localhost:9"}, "command line: --admin-listen: "},
		{[]string{"--listen", taken.Addr().String()}, "(choose another address: --listen, or listen in a "},
	} {
		r := tierway(t, append([]string{"demo"}, c.args...)...)
		if r.status == 0 || !strings.Contains(r.messages, c.want) || strings.Contains(r.messages, "demo:") ||
			strings.Contains(r.messages, "config.yaml") {
			t.Errorf("%v: status %d, %s\nwant %q", c.args, r.status, r.messages, c.want)
		}
	}
}

func TestDemoGreetingNamesNoConfigurationFile(t *testing.T) {
	var out bytes.Buffer
	if err := (ready{BaseURL: "http://127.0.0.1:8080/v1"}).print(&out, false); err != nil {
		t.Fatal(err)
	}
	help := must(t, "demo", "--help").out
	for _, text := range []string{out.String(), help} {
		if strings.Contains(text, "config.yaml") || strings.Contains(text, " -c ") {
			t.Errorf("the demo names a configuration file:\n%s", text)
		}
	}
}

// TestAStoppedDemoLogsNoFault stops a demo that reads the events of all its engines.
func TestAStoppedDemoLogsNoFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	greeting, out := io.Pipe()
	var messages bytes.Buffer
	c := root(out, &messages)
	c.SetArgs([]string{"demo", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"})
	ended := make(chan error, 1)
	go func() {
		err := c.ExecuteContext(ctx)
		out.CloseWithError(err)
		ended <- err
	}()
	var r ready
	if err := json.NewDecoder(greeting).Decode(&r); err != nil {
		t.Fatal(err)
	}
	for read := 0; read < 7; {
		state := demoWorkers(t, r)
		read = strings.Count(state, `"state":"partial"`) + strings.Count(state, `"state":"complete"`)
	}
	cancel()
	if err := <-ended; err != nil || messages.Len() > 0 {
		t.Errorf("%v\n%s", err, messages.String())
	}
}

// demoWorkers returns the state of a demo's workers.
func demoWorkers(t *testing.T, r ready) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.AdminURL+"/admin/workers", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+r.AdminKey)
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
