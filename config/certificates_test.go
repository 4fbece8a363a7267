package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tierway/workers"
)

// TestCertificatesAndKeyFilesOfWorkersAreChecked, and the pool's certificates apply to its workers with https.
func TestCertificatesAndKeyFilesOfWorkersAreChecked(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "a")
	_, other := writePair(t, dir, "b")
	keyFile := filepath.Join(dir, "worker.key")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(keyFile, "a-whole-key\n")
	write(filepath.Join(dir, "two"), "a\nb\n")
	write(filepath.Join(dir, "short"), "x\n")
	vars := map[string]string{"CERT": cert, "KEY": key, "OTHER": other, "K": "a-whole-key", "FILE": keyFile, "DIR": dir}
	for name, c := range map[string]struct{ pool, worker, want string }{
		"all":           {`tls: {ca: "${CERT}"}, `, `, tls: {cert: "${CERT}", key: "${KEY}"}, api_key_file: "${FILE}"`, ""},
		"no cert":       {"", `, tls: {key: "${KEY}"}`, "workers[0].tls: has only one of cert and key"},
		"no key":        {`tls: {cert: "${CERT}"}, `, "", "tiers[0].tls: has only one of cert and key"},
		"another key":   {"", `, tls: {cert: "${CERT}", key: "${OTHER}"}`, "workers[0].tls.cert: the certificate"},
		"no file":       {"", `, tls: {ca: "${DIR}/gone"}`, `workers[0].tls.ca: cannot read "${DIR}/gone": no such file`},
		"no authority":  {"", `, tls: {ca: "${KEY}"}`, `workers[0].tls.ca: "${KEY}" has no certificate in PEM form`},
		"two keys":      {"", `, api_key_env: K, api_key_file: "${FILE}"`, "workers[0].api_key_file: has no effect beside"},
		"no key file":   {"", `, api_key_file: "${DIR}/gone"`, `workers[0].api_key_file: cannot read "${DIR}/gone": no such`},
		"two lines":     {"", `, api_key_file: "${DIR}/two"`, "has a line break"},
		"one character": {"", `, api_key_file: "${DIR}/short"`, `the key in "${DIR}/short" has 1 character`},
	} {
		src := keys + `tiers: [ { name: a, model: m, ` + c.pool + `workers: [ { name: w, url: "https://h"` + c.worker + " } ] } ]\n"
		got := problemsOf(t, src, vars)
		if c.want == "" && len(got) > 0 || c.want != "" && !strings.Contains(strings.Join(got, "\n"), c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	src := keys + `tiers: [ { name: a, model: m, tls: {ca: "${CERT}"}, workers: [ { name: w, url: "https://h" }, ` +
		`{ name: own, url: "https://i", tls: {cert: "${CERT}", key: "${KEY}"} }, { name: plain, url: "http://h:1" } ] } ]` + "\n"
	f, err := Parse("f", []byte(src), environment(vars))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []*workers.TLS{{CA: cert}, {Cert: cert, Key: key}, nil} {
		got := f.ResolvedPools()[0].Workers[i].TLS
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("worker %d has %+v, want %+v", i, got, want)
		}
	}
	if got := problemsOf(t, strings.ReplaceAll(src, "https:", "http:"), vars); len(got) != 2 {
		t.Errorf("certificates without https: %q", got)
	}
}
