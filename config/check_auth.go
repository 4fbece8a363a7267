package config

import (
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"tierway/tenants"
)

// makeDigest is the way to a key's digest.
const makeDigest = `printf %s "$KEY" | sha256sum`

// weakKeys are keys that documentation, examples and lists of common passwords have.
var weakKeys = [...]string{
	"0", "1", "123", "1234", "12345", "123456", "12345678", "123456789", "1234567890", "abc123", "admin", "anything", "api-key",
	"api_key", "apikey", "changeit", "changeme", "change-me", "change_me", "default", "dummy", "dummy-key", "empty", "EMPTY", "example",
	"fake", "fake-key", "foo", "foobar", "key-1234", "letmein", "lm-studio", "local", "localhost", "master-key", "no-key",
	"no-key-required", "none", "None", "not-needed", "null", "ollama", "openai", "pass", "password", "placeholder", "qwerty", "root",
	"sk-1", "sk-123", "sk-1234", "sk-12345", "sk-123456", "sk-12345678", "sk-1234567890", "sk-changeme", "sk-dummy", "sk-fake", "sk-key",
	"sk-local", "sk-no-key-required", "sk-none", "sk-not-needed", "sk-placeholder", "sk-proxy", "sk-test", "sk-xxx", "sk-xxxx",
	"tierway", "token-abc123", "undefined", "vllm", "xxx", "your-api-key", "your-key", "your_api_key", "YOUR_API_KEY", "YOUR_KEY",
}

// isWeakDigest reports whether a digest in lower case is that of one of weakKeys.
func isWeakDigest(digest string) bool {
	return slices.ContainsFunc(weakKeys[:], func(key string) bool {
		sum := tenants.Digest(key)
		return hex.EncodeToString(sum[:]) == digest
	})
}

// checkTLS checks that certificate and key are both there, load and belong
// together.
func (d *decoder) checkTLS(path string, t TLS) {
	switch {
	case !t.On():
		return
	case t.Cert == "":
		d.fault(path+".cert", "missing beside key", "name the certificate's PEM file")
		return
	case t.Key == "":
		d.fault(path+".key", "missing beside cert", "name the private key's PEM file")
		return
	case d.draft: // it reads no file
		return
	}
	cert, certErr := os.ReadFile(t.Cert)
	key, keyErr := os.ReadFile(t.Key)
	d.unreadable(path+".cert", t.Cert, certErr)
	d.unreadable(path+".key", t.Key, keyErr)
	if certErr != nil || keyErr != nil {
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		d.fault(path+".cert", fmt.Sprintf("the certificate %s does not load with its key: %v", d.shown(path+".cert", t.Cert), err), "both are PEM files and belong together")
	}
}

// unreadable notes that a file could not be read, if err says so.
func (d *decoder) unreadable(path, file string, err error) {
	if err == nil {
		return
	}
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	d.fault(path, fmt.Sprintf("cannot read %s: %v", d.shown(path, file), err), "paths are relative to where the program was started")
}

// checkAuth checks the keys of both planes.
func (d *decoder) checkAuth(f *File) {
	digests := map[string]string{}
	for i, k := range f.Auth.Keys {
		d.checkDigest(digests, fmt.Sprintf("auth.keys[%d]", i), k.SHA256)
	}
	names, adminKeys := map[string]string{}, []tenants.KeyConfig{}
	for i, k := range f.Admin.Keys {
		path := fmt.Sprintf("admin.keys[%d]", i)
		d.checkDigest(digests, path, k.SHA256)
		d.checkTwice(names, path+".name", k.Name)
		adminKeys = append(adminKeys, tenants.KeyConfig{Name: "admin", SHA256: k.SHA256})
	}
	if len(f.Admin.Keys) > 0 && !slices.ContainsFunc(f.Admin.Keys, func(k AdminKey) bool { return k.Role == "" || k.Role == roleAdmin }) {
		d.caution("admin.keys", "there are viewers only: unless the database has an admin, nobody can change anything before the first one is made",
			"give one of them role: admin, or make one with `tierway keys create --admin`")
	}
	_, _, err := tenants.FromConfig(f.Auth.Keys)
	d.adopt(err, func(path string) string { return path })
	_, _, err = tenants.FromConfig(adminKeys)
	d.adopt(err, func(path string) string { return strings.Replace(path, "auth.", "admin.", 1) })
	if f.Auth.Required && len(f.Auth.Keys) == 0 && f.Store.SQL == "" {
		d.fault("auth.keys", "keys are required, and there are none here and no database to hold any, so that nobody could ask",
			"add - {name: me, sha256: …} with the output of "+makeDigest+", set store.sql, or write auth.required: false on loopback")
	}
}

// checkDigest notes a digest that another key has.
func (d *decoder) checkDigest(seen map[string]string, path, digest string) {
	if digest == "" {
		return
	}
	digest = strings.ToLower(digest)
	if isWeakDigest(digest) {
		d.fault(path+".sha256", "is the digest of a well-known key", "make a key with `openssl rand -hex 20` and write its digest").hide = true
		return
	}
	if first, twice := seen[digest]; twice {
		d.fault(path+".sha256", "the same key as "+first, "every key has one place; give this one its own").hide = true
		return
	}
	seen[digest] = path
}
