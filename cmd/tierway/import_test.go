package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tierway/tenants"
)

// runTree runs the program with arguments and standard input.
func runTree(input string, args ...string) (out, messages string, err error) {
	var stdout, stderr bytes.Buffer
	c := root(&stdout, &stderr)
	c.SetIn(strings.NewReader(input))
	c.SetArgs(args)
	err = c.Execute()
	return stdout.String(), stderr.String(), err
}

func TestImportedConfigurationPassesCheck(t *testing.T) {
	for router, input := range map[string]string{
		"vllm-router": "vllm-router --policy random --worker-urls http://a:8000 --port 30000 --dp-aware",
		"continuum":   "server: { bind_address: \"127.0.0.1:1\", workers: 4 }\nbackends: [{ name: a, url: \"http://a\" }]\n",
	} {
		out, messages, err := runTree(input, "import", router, "-")
		if err != nil || !strings.HasPrefix(messages, "left out:\n  ") {
			t.Fatalf("%s: %v %s", router, err, messages)
		}
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, messages, err := runTree("", "check", "-c", path); err != nil || messages != "" {
			t.Errorf("%s: %v %s\n%s", router, err, messages, out)
		}
	}
}

// endless is an input without an end. It counts what is read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '#'
	}
	e.read += len(p)
	return len(p), nil
}

// TestInputIsReadWithABound: a wrong file or pipe must not fill the memory.
func TestInputIsReadWithABound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 1<<40); err != nil { // sparse
		t.Fatal(err)
	}
	valid := filepath.Join(t.TempDir(), "config.yaml")
	const text = "auth: { required: false }\n" +
		"tiers: [ { name: small, model: m, workers: [ { name: w, url: \"http://127.0.0.1:1\" } ] } ]\n"
	if err := os.WriteFile(valid, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(adminKeyVariable, newKey(t, tenants.AdminPrefix))
	for _, args := range [][]string{
		{"import", "vllm-router", "-"}, {"import", "continuum", "-"}, {"import", "vllm-router", file},
		{"import", "continuum", file},
		{"explain", "--live", "--draft", "-", "--decision", "r"}, {"explain", "--live", "--draft", file, "--decision", "r"},
		{"explain", "-c", valid, "--file", "-"}, {"explain", "-c", valid, "--file", file},
		{"replay", "--live", "--draft", "-"}, {"replay", "--live", "--draft", file},
	} {
		var stderr bytes.Buffer
		in := &endless{}
		c := root(io.Discard, &stderr)
		c.SetIn(in)
		c.SetArgs(args)
		err := c.Execute()
		if err == nil || !strings.Contains(stderr.String()+err.Error(), " is longer than ") || in.read > 2*maxRequest {
			t.Errorf("%v: %v %s after %d bytes", args, err, stderr.String(), in.read)
		}
	}
	if _, messages, err := runTree("", "check", "-c", file); err == nil ||
		!strings.Contains(messages, "the file is longer than 4MiB") || len(messages) > 1000 {
		t.Errorf("check: %v %.200s", err, messages)
	}
}

func TestImportExitStatus(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status exit // 0: main prints the error and exits with 2
		want   string
	}{
		{[]string{"import", "vllm-router", "-"}, 1, "- cannot be imported:\nthe file names no worker"},
		{[]string{"import", "vllm-router", "missing.sh"}, 1, "missing.sh cannot be imported:\n"},
		{[]string{"import"}, 0, "name the router"},
		{[]string{"import", "continuum"}, 0, "want one FILE"},
	} {
		out, messages, err := runTree("vllm-router --mode pd", c.args...)
		var status exit
		errors.As(err, &status)
		if err == nil || status != c.status || out != "" || !strings.Contains(messages+err.Error(), c.want) {
			t.Errorf("%v: %v, %q, want %v with %q", c.args, err, messages, c.status, c.want)
		}
	}
}
