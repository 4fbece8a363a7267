package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

func TestImportExitStatus(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status exit // 0: main prints the error and exits with 2
		want   string
	}{
		{[]string{"import", "vllm-router", "-"}, 1, "- cannot be imported:\nline 1: --mode: "},
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
